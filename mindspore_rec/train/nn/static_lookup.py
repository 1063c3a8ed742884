# SPDX-License-Identifier: Apache-2.0
"""VocabularyLookup: look up a fixed vocabulary in a static table or a dense Parameter."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.nn.lookup import TableLookup, check_max_norm, clip_rows
from mindspore_rec.train.parameter.static_parameter import StaticParameter

__all__ = ["VocabularyLookup"]


class VocabularyLookup(nn.Cell):
    """Lookup over a fixed vocabulary: in a table on the host, or in a Parameter on the device.

    `EmbeddingLookup` is a subclass; other modules of the library refer to this base class.

    Args:
        table: a StaticParameter, or a float32 Parameter `[vocab_size, embedding_size]`.
        max_norm: upper limit of the L2 norm of returned rows, as for `TableLookup`.
        padding_key: id whose lookup returns zeros and trains no row, as for `TableLookup`. Only for
            a StaticParameter.
        output_dtype: dtype of the returned rows, as for `TableLookup`. Only for a StaticParameter.

    Attributes:
        target: 'DEVICE' if `table` is a Parameter, otherwise 'CPU'; in the subclass
            `EmbeddingLookup`, the value of the argument `target`.
        vocab_size: number of ids.
        embedding_size: number of floats in a row.
        embedding_table: the StaticParameter or Parameter that contains the rows.
    """

    def __init__(
        self,
        table: StaticParameter | Parameter,
        *,
        max_norm: float | None = None,
        padding_key: int | None = None,
        output_dtype: Any = ms.float32,
    ) -> None:
        super().__init__()
        self.max_norm = check_max_norm(max_norm)
        self.vocab_size: int = table.shape[0]
        self.embedding_size: int = table.shape[1]
        if isinstance(table, StaticParameter):
            self.target = "CPU"
            self.lookup = TableLookup(
                table=table, max_norm=max_norm, padding_key=padding_key, output_dtype=output_dtype
            )
            self.embedding_table = table
        else:
            self.target = "DEVICE"
            self.embedding_table = table
            self.lookup = _DenseLookup(self.embedding_table, self.max_norm)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of ids."""
        return self.lookup(ids)


class _DenseLookup(nn.Cell):
    """Lookup of ids in an ordinary Parameter on the device."""

    def __init__(self, weight: Parameter, max_norm: float | None) -> None:
        super().__init__(auto_prefix=False)
        self.weight = weight
        self.max_norm = max_norm

    def construct(self, ids: Tensor) -> Tensor:
        rows = ops.gather(self.weight, ids, 0)
        return rows if self.max_norm is None else clip_rows(rows, self.max_norm)
