# SPDX-License-Identifier: Apache-2.0
"""TableLookup: look up ids in one table. The module also has the argument checks of all lookups."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.common.rows.policies import MAX_COEFFICIENT
from mindspore_rec.train.nn.new_tables import table_of
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = [
    "TableLookup",
    "check_coefficient",
    "check_counts",
    "check_max_norm",
    "check_output_dtype",
    "check_padding_key",
    "check_sparse",
    "clip_rows",
]


def check_coefficient(value: int) -> int:
    """Check that `value` is a legal `faae_coefficient` (an int in `[1, 2**20]`); return `value`.

    The argument's name comes from Rec SDK, where "faae" stands for "feature admission and
    eviction". Each occurrence of an id in a lookup adds this coefficient to the id's count.
    Admission by count and eviction by frequency read the counts of ids.

    Raises:
        TypeError, ValueError: `value` is not an int in `[1, 2**20]`.

    Example:
        >>> check_coefficient(3)
        3
    """
    return check_int("faae_coefficient", value, 1, MAX_COEFFICIENT)


def check_counts(config: Any, faae_coefficient: int) -> None:
    """Raise ValueError if a static table, which has no counts, gets a coefficient other than 1.

    Args:
        config: description of the lookup's table. If `config` is not a `TableConfig`, the function
            checks nothing.
        faae_coefficient: the lookup's coefficient.

    Example:
        >>> check_counts(TableConfig(8, vocab_size=100), 1)
    """
    if isinstance(config, TableConfig) and config.vocab_size is not None and faae_coefficient != 1:
        raise ValueError("faae_coefficient is for hash tables; with vocab_size leave it out")


def check_max_norm(value: float | None) -> float | None:
    """Check that `value` is a legal `max_norm` (None or a number above 0); return `value`.

    Raises:
        TypeError, ValueError: `value` is neither None nor a finite number above 0.

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
    """Check the dtype of the rows that a lookup returns, and return the dtype.

    Args:
        output_dtype: `float32`; or `bfloat16`, for a table with bfloat16 values.
        table: the lookup's table.
        max_norm: the lookup's `max_norm`.

    Raises:
        ValueError: `output_dtype` is an unsupported dtype, or is bfloat16 although the table's
            values are not bfloat16 or `max_norm` is set.

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
    """Check that `value` is a legal `padding_key` (None or an int64); return `value`.

    Raises:
        TypeError, ValueError: `value` is neither None nor an int in the range of int64.

    Example:
        >>> check_padding_key(-1)
        -1
    """
    return None if value is None else check_int("padding_key", value, -(1 << 63), (1 << 63) - 1)


def check_sparse(sparse: bool) -> None:
    """Raise ValueError unless `sparse` is True; in MindSpore, True selects gradients per key.

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
    """Scale rows with an L2 norm above `max_norm` down to the norm `max_norm`.

    Args:
        rows: float32 Tensor `[..., dim]`.
        max_norm: largest norm of a returned row, above 0.

    Example:
        >>> print(clip_rows(Tensor([[3.0, 4.0]]), 1.0))
        [[0.6 0.8]]
    """
    norm = ops.sqrt(ops.maximum((rows * rows).sum(-1, keepdims=True), 1e-24))
    return rows * ops.minimum(max_norm / norm, 1.0)


class TableLookup(nn.Cell):
    """Look up ids in a table; only a lookup in training inserts rows.

    Args:
        config: description of a new table: a static table if `vocab_size` is set, otherwise a hash
            table. The default name is `embedding_table_<n>` for a static table and
            `hash_embedding_<n>` for a hash table. Default: None, which means that `table` is set.
        table: an existing HashTable or StaticParameter to share, in place of `config`.
        max_norm: upper limit of the L2 norm of returned rows. The lookup scales rows with a norm
            above `max_norm` down to the norm `max_norm`. Default: no limit.
        padding_key: id whose lookup returns zeros and trains no row. Default: none.
        faae_coefficient: number that each occurrence of an id adds to the id's count, 1 to 2**20.
            Admission by count and eviction by frequency read the counts of ids. Only for hash
            tables. Default: 1.
        output_dtype: dtype of the returned rows and of their gradient, like FBGEMM's argument
            `output_dtype`. The dtype must be `float32`, or `bfloat16` if the table's values are
            bfloat16 and `max_norm` is not set. With `bfloat16`, the lookup returns the stored bits,
            which take half the bytes of float32 (`docs/precision.md`). Default: `float32`.

    Inputs:
        ids: int32 or int64 Tensor of any shape, static or dynamic.

    Outputs:
        Tensor `[*ids.shape, dim]` of `output_dtype`.

    Attributes:
        embedding_table: the table.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: ids have the wrong dtype or are outside the vocabulary, or the cell is in
            training and its table has no optimizer.

    For a lookup with MindRec's arguments, see `HashEmbeddingLookup`; for a lookup with MindSpore's
    arguments, see `EmbeddingLookup`.

    Example:
        >>> from mindspore_rec import TableConfig
        >>> from mindspore_rec.nn import TableLookup
        >>> items = TableLookup(TableConfig(4, name="doc.lookup.items"), padding_key=0)
        >>> items(Tensor([[7, -1, 1 << 62]])).shape
        (1, 3, 4)
        >>> TableLookup(table=items.embedding_table)(Tensor([7])).shape
        (1, 4)
    """

    def __init__(
        self,
        config: TableConfig | None = None,
        *,
        table: TableParameter | None = None,
        max_norm: float | None = None,
        padding_key: int | None = None,
        faae_coefficient: int = 1,
        output_dtype: Any = ms.float32,
    ) -> None:
        super().__init__()
        check_max_norm(max_norm)
        check_padding_key(padding_key)
        check_coefficient(faae_coefficient)
        described = table.config if isinstance(table, TableParameter) else config
        check_counts(described, faae_coefficient)
        table = table_of(type(self).__name__, config, table)
        self.embedding_table = table
        self.embedding_size = table.dim
        self.max_norm = check_max_norm(max_norm)
        self.padding_key = check_padding_key(padding_key)
        self.output_dtype = check_output_dtype(output_dtype, table, max_norm)
        self.narrow = output_dtype == ms.bfloat16
        self.descriptor = table.make_descriptor(self.padding_key, faae_coefficient=faae_coefficient)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of `ids`, with shape `[*ids.shape, dim]` and dtype `output_dtype`."""
        if isinstance(ids, (int, float, tuple, list)):
            raise TypeError("ids must be a Tensor, not a Python number, tuple or list")
        if self.training:
            rows = self.embedding_table.lookup_train(ids, self.descriptor, self.narrow)
        else:
            rows = self.embedding_table.lookup_eval(ids, self.descriptor, self.narrow)
        return rows if self.max_norm is None else clip_rows(rows, self.max_norm)
