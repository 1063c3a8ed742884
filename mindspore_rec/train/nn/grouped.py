# SPDX-License-Identifier: Apache-2.0
"""GroupedEmbedding: several tables looked up by one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.train.graph.operators import custom_op
from mindspore_rec.train.nn.lookup import check_coefficient, check_padding_key
from mindspore_rec.train.nn.new_tables import new_table
from mindspore_rec.train.parameter.table_config import TableConfig
from mindspore_rec.train.parameter.table_parameter import TableParameter
from mindspore_rec.train.parameter.upstream import REQUIRED

__all__ = ["GroupedEmbedding"]


class GroupedEmbedding(nn.Cell):
    """Look up column t of the ids in table t, with one operator for all tables.

    With one operator, many small tables cost little more than one large table. Separate lookups
    would slice the ids, wake the threads and concatenate the rows once per table. Separate lookups
    would return the same rows and train the tables to the same values, bit for bit.

    Args:
        tables: a HashTable or StaticParameter for each column, all with rows of the same size. A
            table may serve several columns, which are then looked up from left to right.
        config: a `TableConfig` for each column, in place of `tables`, all with the same
            `embedding_dim` and with different names. For each config, the cell makes a new table: a
            StaticParameter if the config has `vocab_size`, otherwise a HashTable. Default: none.
        padding_key: id whose lookup returns zeros and trains no row, in all tables. Default: none.
        faae_coefficient: number that each occurrence of an id adds to the id's count, as for
            `HashEmbeddingLookup`; one number for all columns, or one per column. Default: 1.

    Inputs:
        ids: int32 or int64 Tensor `[..., tables]`.

    Outputs:
        float32 Tensor `[..., tables, dim]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RuntimeError: the ids have the wrong number of columns, or the cell is in training and no
            optimizer trains the tables.

    The cell is modelled on the merged (grouped) embeddings of Rec SDK and the table batching of
    FBGEMM.

    Example:
        >>> import mindspore as ms
        >>> from mindspore import Tensor
        >>> from mindspore_rec import GroupedEmbedding, MapParameter, TableConfig
        >>> tables = [MapParameter(f"doc.grouped.{t}", value_shape=4) for t in range(3)]
        >>> GroupedEmbedding(tables)(Tensor([[1, 2, 3], [4, 5, 6]], ms.int32)).shape
        (2, 3, 4)
        >>> configs = [TableConfig(4, name=f"doc.grouped.config.{t}") for t in range(2)]
        >>> GroupedEmbedding(config=configs)(Tensor([[1, 2]], ms.int64)).shape
        (1, 2, 4)
    """

    def __init__(
        self,
        tables: Sequence[TableParameter] = REQUIRED,
        *,
        config: Sequence[TableConfig] | None = None,
        padding_key: int | None = None,
        faae_coefficient: int | Sequence[int] = 1,
    ) -> None:
        super().__init__()
        self.padding_key = check_padding_key(padding_key)
        if tables is REQUIRED and config is None:
            raise TypeError("tables must be given, or config=[TableConfig(...), ...]")
        if tables is not REQUIRED and config is not None:
            raise ValueError("tables are of what config describes: with config= leave it out")
        columns: list[Any] = list(tables if config is None else config)
        coefficients = _coefficients(faae_coefficient, len(columns))
        if config is not None:
            columns = _new_tables(columns)
        _check_tables(columns)
        self.tables = nn.CellList(columns, auto_prefix=False)
        self.embedding_size = columns[0].dim
        descriptors = [
            table.make_descriptor(self.padding_key, faae_coefficient=each).asnumpy()
            for table, each in zip(columns, coefficients, strict=True)
        ]
        self.descriptors = Tensor(np.stack(descriptors))
        self.like = columns[0].like
        distinct = list({id(table): table for table in columns}.values())
        self.anchors = ms.ParameterTuple([table.anchor for table in distinct])
        self._sum = ops.AddN()
        self._make_operators()

    def _make_operators(self) -> None:
        accumulate = custom_op("MsrGroupAccumulate", ms.float32)
        refuse = custom_op("MsrRefuseGradient", ms.float32)
        zeros = ops.zeros_like

        def train_bprop(ids, descriptors, like, anchor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(ids), descriptors, like, accumulate(dout[0], out[1], descriptors)

        def eval_bprop(ids, descriptors, like, anchor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(ids), descriptors, like, refuse(dout, descriptors)

        self._train = custom_op(
            "MsrGroupLookupTrain", (ms.float32, ms.int64), train_bprop, multi_output=True
        )
        self._eval = custom_op("MsrGroupLookupEval", ms.float32, eval_bprop)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows of ids, float32 `[..., tables, dim]`."""
        if isinstance(ids, (int, float, tuple, list)):
            raise TypeError("ids must be a Tensor, not a Python number, tuple or list")
        # The operator reads the sum of all anchors, because the gradient of a sum passes the
        # operator's one token to every anchor.
        anchor = self._sum(self.anchors)
        if self.training:
            return self._train(ids, self.descriptors, self.like, anchor)[0]
        return self._eval(ids, self.descriptors, self.like, anchor)


def _check_tables(tables: list[TableParameter]) -> None:
    if not tables:
        raise ValueError("tables must have at least one table, got none")
    for table in tables:
        if not isinstance(table, TableParameter):
            raise TypeError(
                f"tables must hold Map- or StaticParameters, got {type(table).__name__}"
            )
        table.refuse_device("a GroupedEmbedding")
        if table.dim != tables[0].dim:
            raise ValueError(
                f"tables must have rows of one size: '{tables[0].name}' has {tables[0].dim} "
                f"floats, '{table.name}' {table.dim}"
            )


def _new_tables(configs: list[TableConfig]) -> list[TableParameter]:
    """Make a table from each config; if this fails, close the tables made before."""
    names: set[str] = set()
    for config in configs:
        if not isinstance(config, TableConfig):
            raise TypeError(f"config must hold TableConfigs, got {type(config).__name__}")
        if config.embedding_dim != configs[0].embedding_dim:
            raise ValueError(
                "config must have rows of one size, got embedding_dim="
                f"{configs[0].embedding_dim} and {config.embedding_dim}"
            )
        if config.name is not None and config.name in names:
            raise ValueError(f"config must have different names, got '{config.name}' twice")
        names |= {config.name or ""}
    tables: list[TableParameter] = []
    try:
        for config in configs:
            tables.append(new_table("GroupedEmbedding", config))
    except BaseException:
        for table in tables:
            table.close()
        raise
    return tables


def _coefficients(numbers: Any, columns: int) -> list[int]:
    each = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers] * columns
    if len(each) != columns:
        raise ValueError(f"faae_coefficient must be one number or {columns}, got {len(each)}")
    return [check_coefficient(value) for value in each]
