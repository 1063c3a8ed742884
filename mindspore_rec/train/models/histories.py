# SPDX-License-Identifier: Apache-2.0
"""Parts of networks that read histories: lookups of values, and a check of the number of blocks."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.columns.histories import ragged_places
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.models.schema_cells import SchemaEmbedding
from mindspore_rec.train.nn.bag import EmbeddingBag
from mindspore_rec.train.nn.lookup import TableLookup
from mindspore_rec.train.parameter.table_parameter import COMBINERS

__all__ = ["HistoryLookup", "check_blocks"]

_MOST_BLOCKS = 64


class HistoryLookup(nn.Cell):
    """Look up the values of a schema's histories in the tables of an `InputLayer`.

    Columns with the same `table` share rows: an item has the same vector in a history and in `ids`.
    The number of values in a history may change from batch to batch, and may be 0.

    Args:
        inputs: the first cell of a network that was made from a schema.
        mode: None for one vector per value; or 'mean', 'sum' or 'sqrtn' for one vector per list,
            with the formulas of `EmbeddingBag`. The vector of an empty list is zero.
            Default: None.

    Inputs:
        arrays: tuple of all inputs of the network after `ids`, in the order of `Schema.inputs`.

    Outputs:
        Tuple with one Tensor per array of the histories, in the order of `names`. If the values are
        keys, the values are replaced by the keys' rows: float32 `[N, dim]`, or `[B, dim]` if `mode`
        is set. Arrays of numbers, `[N]`, and of offsets, int64 `[B + 1]`, are returned unchanged.

    Attributes:
        names: names of the arrays, such as 'seen.values', 'seen_at.values' and 'seen.offsets'.
        dims: for each array, the number of floats in a vector; 0 for numbers and offsets.

    Raises:
        TypeError: `inputs` was not made from a schema.
        ValueError: the schema has no history, or the mode is unknown.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, HistoryColumn
        >>> from mindspore_rec.models import HistoryLookup, InputLayer, Network
        >>> from mindspore_rec.nn import MLP
        >>> class Mean(Network):
        ...     reads_histories = True
        ...
        ...     def __init__(self, schema, *, hidden=(8,), name="doc.histories", seed=0):
        ...         super().__init__(schema, hidden=hidden, name=name, seed=seed)
        ...         self.inputs = InputLayer(self.features, "concat", f"{name}.embedding", seed)
        ...         self.histories = HistoryLookup(self.inputs, "mean")
        ...         widths = [*self.inputs.widths, self.histories.dims[0]]
        ...         self.deep = MLP(widths, hidden, out_features=1)
        ...
        ...     def construct(self, ids, *arrays):
        ...         means = self.histories(arrays)[0]
        ...         return self.deep(self.inputs(ids)[0], means)
        >>> columns = [CategoryColumn("item", table="items"), HistoryColumn("seen", table="items")]
        >>> net = Mean(Schema(columns))
        >>> seen, offsets = Tensor([7, 8, 9], ms.int64), Tensor([0, 3, 3], ms.int64)
        >>> net.histories.names, net(Tensor([[1], [2]], ms.int64), seen, offsets).shape
        (('seen.values', 'seen.offsets'), (2, 1))
    """

    def __init__(self, inputs: InputLayer, mode: str | None = None) -> None:
        super().__init__()
        embedding = getattr(inputs, "embedding", None)
        if not isinstance(embedding, SchemaEmbedding):
            raise TypeError(f"inputs must be the InputLayer of a schema, got {inputs!r:.80}")
        schema = embedding.schema
        if not schema.histories:
            raise ValueError("the schema must have a history, a HistoryColumn")
        if mode is not None:
            check_one_of("mode", mode, tuple(COMBINERS))
        self.first = len(schema.inputs) - 1 - _count(schema.inputs)
        self.names = tuple(schema.inputs[1 + self.first :])
        offsets = {v: o for o, values in ragged_places(self.names).items() for v in values}
        columns = [each for history in schema.histories for each in (*history, None)]
        self.lookups = nn.CellList()
        self.pools = mode is not None
        places: list[int] = []  # place of the lookup of each array
        dims = []
        for column in columns:
            group = None if column is None else embedding.group_of(column.name)
            places.append(-1 if group is None else len(self.lookups))
            dims.append(0)
            if group is None:
                continue
            table = embedding.table_of(group)
            dims[-1] = table.dim
            self.lookups.append(
                TableLookup(table=table) if mode is None else EmbeddingBag(mode=mode, table=table)
            )
        self.places = tuple(places)
        self.dims = tuple(dims)
        self.offsets = tuple(offsets.get(place, -1) for place in range(len(self.names)))

    def construct(self, arrays: Any) -> Any:
        """Replace keys by rows; return the rows, and the numbers and offsets unchanged."""
        histories = arrays[self.first :]
        made: tuple[Tensor, ...] = ()
        for k in range(len(self.places)):
            array = histories[k]
            if self.places[k] >= 0:
                lookup = self.lookups[self.places[k]]
                if self.pools:
                    array = lookup(array, histories[self.offsets[k]][:-1])
                else:
                    array = lookup(array)
            made += (array,)
        return made


def _count(inputs: list[str]) -> int:
    """Return the number of arrays that belong to histories."""
    return sum(1 + len(values) for values in ragged_places(inputs).values())


def check_blocks(blocks: int) -> int:
    """Check and return the number of blocks of a network.

    Raises:
        TypeError, ValueError: `blocks` is not an int from 1 to 64.

    Example:
        >>> check_blocks(2)
        2
    """
    return check_int("blocks", blocks, 1, _MOST_BLOCKS)
