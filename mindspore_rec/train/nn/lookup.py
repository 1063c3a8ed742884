# SPDX-License-Identifier: Apache-2.0
"""TableLookup: ids to rows of one table; and the checks of what every lookup takes."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.common.rows.policies import MAX_COEFFICIENT
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = [
    "TableLookup",
    "check_coefficient",
    "check_max_norm",
    "check_output_dtype",
    "check_padding_key",
    "check_sparse",
    "clip_rows",
]


def check_coefficient(value: int) -> int:
    """Return a `faae_coefficient`, an int in `[1, 2**20]`.

    The name is Rec SDK's: the coefficient of "feature admission and eviction". An occurrence of an
    id in a lookup counts for so many: towards the threshold of admission by count, and in the
    frequency by which eviction may choose.

    Example:
        >>> check_coefficient(3)
        3
    """
    return check_int("faae_coefficient", value, 1, MAX_COEFFICIENT)


def check_max_norm(value: float | None) -> float | None:
    """Return a `max_norm`, None or a number above 0.

    Example:
        >>> check_max_norm(1)
        1.0
    """
    if value is None:
        return None
    if check_number("max_norm", value) <= 0:
        raise ValueError(f"max_norm must be > 0, got {value}")
    return float(value)


def check_output_dtype(output_dtype: Any, table: TableParameter, max_norm: float | None) -> Any:
    """Return an `output_dtype`, the dtype of the rows that a lookup returns.

    Args:
        output_dtype: `float32`; or `bfloat16`, for rows that are kept so.
        table: the lookup's table.
        max_norm: the lookup's.

    Raises:
        ValueError: it is neither, or the table or `max_norm` does not allow it.

    Example:
        >>> from mindspore_rec import MapParameter
        >>> table = MapParameter("doc.check_output_dtype", value_dtype=ms.bfloat16)
        >>> check_output_dtype(ms.bfloat16, table, None)
        mindspore.bfloat16
    """
    if output_dtype not in (ms.float32, ms.bfloat16):
        raise ValueError(f"output_dtype must be float32 or bfloat16, got {output_dtype}")
    if output_dtype == ms.float32:
        return output_dtype
    if table.config.value_dtype != ms.bfloat16:
        raise ValueError(
            f"table '{table.name}': output_dtype must be float32 with value_dtype "
            f"{table.config.value_dtype}; rows are handed over as bfloat16 where they are kept so, "
            "by value_dtype=ms.bfloat16"
        )
    if max_norm is not None:
        raise ValueError(
            f"table '{table.name}': output_dtype must be float32 with max_norm, whose scaled rows "
            "are not bfloat16"
        )
    return output_dtype


def check_padding_key(value: int | None) -> int | None:
    """Return a `padding_key`, None or an int64.

    Example:
        >>> check_padding_key(-1)
        -1
    """
    return None if value is None else check_int("padding_key", value, -(1 << 63), (1 << 63) - 1)


def check_sparse(sparse: bool) -> None:
    """Raise ValueError unless `sparse`, whether gradients are per key, is True.

    Example:
        >>> check_sparse(True)
    """
    if sparse is not True:
        raise ValueError(
            f"sparse must be True for a table on the host, got {sparse!r}: its gradients are of "
            "the keys in the batch. Leave sparse out; the rows learn the same. Where a dense "
            "gradient is needed, take EmbeddingLookup(..., target='DEVICE', sparse=False)"
        )


def clip_rows(rows: Tensor, max_norm: float) -> Tensor:
    """Scale rows whose L2 norm is above `max_norm` to that norm.

    Args:
        rows: float32 Tensor `[..., dim]`.
        max_norm: the norm, above 0.

    Example:
        >>> print(clip_rows(Tensor([[3.0, 4.0]]), 1.0))
        [[0.6 0.8]]
    """
    norm = ops.sqrt(ops.maximum((rows * rows).sum(-1, keepdims=True), 1e-24))
    return rows * ops.minimum(max_norm / norm, 1.0)


class TableLookup(nn.Cell):
    """Lookup of ids in a table: a training lookup if the network is in training, else a read.

    Args:
        table: the table.
        max_norm: norm to which longer rows are scaled on the way out, or None.
        padding_key: id that reads zeros and is never trained, or None.
        faae_coefficient: see `check_coefficient`. Default: 1.
        output_dtype: see `check_output_dtype`. Default: `float32`.
    """

    def __init__(
        self,
        table: TableParameter,
        max_norm: float | None,
        padding_key: int | None,
        faae_coefficient: int = 1,
        output_dtype: Any = ms.float32,
    ) -> None:
        super().__init__()
        self.embedding_table = table
        self.embedding_size = table.dim
        self.max_norm = check_max_norm(max_norm)
        self.padding_key = check_padding_key(padding_key)
        self.output_dtype = check_output_dtype(output_dtype, table, max_norm)
        self.narrow = output_dtype == ms.bfloat16
        self.descriptor = table.make_descriptor(self.padding_key, faae_coefficient=faae_coefficient)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of ids, `[*ids.shape, dim]` of `output_dtype`."""
        if isinstance(ids, (int, float, tuple, list)):
            raise TypeError("ids must be a Tensor, not a Python number, tuple or list")
        if self.training:
            rows = self.embedding_table.lookup_train(ids, self.descriptor, self.narrow)
        else:
            rows = self.embedding_table.lookup_eval(ids, self.descriptor, self.narrow)
        return rows if self.max_norm is None else clip_rows(rows, self.max_norm)
