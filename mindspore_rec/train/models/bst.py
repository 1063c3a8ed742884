# SPDX-License-Identifier: Apache-2.0
"""The Behavior Sequence Transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.candidates import Candidates
from mindspore_rec.train.models.histories import check_blocks
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.history.append import AppendRows
from mindspore_rec.train.nn.history_transformer import HistoryTransformer
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["BST"]


class BST(Network):
    r"""Behavior Sequence Transformer: the scored item attends to the events of each history.

    .. math::
        z = \text{MLP}([x, y_1, y_2, ...]), \quad
        y_h = \text{blocks}_h([v_{h1}, ..., v_{hn}, c_h])_{n+1}

    In the formula, x is the row that `InputLayer` makes from ids and numbers. In history h, the
    events have the vectors :math:`v_{hj}`, oldest first. The vector of the candidate, the item that
    the row scores, is :math:`c_h`. The candidate is appended to its history as the last value. The
    perceptron reads the last block's output for the candidate; the candidate attends to all events.
    A block is a `HistoryTransformer`, and the first block adds the vectors of positions. If a
    history is empty, the candidate attends only to itself.

    The candidate of a history is the row's category whose `table` equals the history's `table`. An
    `IntegerColumn` with the history's `table` also counts as a category. For a side column with
    keys, the vector of the key is appended to the vector of the event. The vector of the category
    with the same `table` as the side column is appended to the candidate's vector. Side columns of
    numbers, such as the times of events, are not read.

    Source: Chen et al., "Behavior Sequence Transformer for E-commerce Recommendation in Alibaba",
    2019, https://arxiv.org/abs/1905.06874. In the paper, the perceptron reads the outputs for all
    events of a history of fixed length. In the paper, the position of an event is the time from the
    event to the recommendation.

    Args:
        schema: the `Schema` of the data, with at least one history.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        blocks: number of transformer blocks, 1 to 64. Default: 1, as in the paper.
        heads: number of heads of a block; must divide the width of an event's vector. Default: 1.
        positions: number of learned position vectors; 0 if positions have no vectors. The first
            position vector belongs to the candidate, the second position vector to the newest
            event. Default: None, which means the `length` of the history plus 1.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout probability of the blocks and the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        name: prefix of the tables' names. Default: 'bst'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        arrays: the arrays after `ids` in `Schema.inputs`: `numbers` if the schema has numbers, then
            the values and the offsets of each history.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        ValueError: the schema has no history, or the number of categories that share the table of a
            history is not 1.

    Supported platforms:
        ``CPU``

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn
        >>> from mindspore_rec.models import BST
        >>> columns = [CategoryColumn("item", table="items"), HistoryColumn("seen", table="items")]
        >>> schema = Schema([*columns, LabelColumn("clicked")], embedding_dim=4)
        >>> net = BST(schema, heads=2, hidden=(8,), name="doc.bst")
        >>> seen, offsets = Tensor([7, 8, 9], ms.int64), Tensor([0, 3, 3], ms.int64)
        >>> net(Tensor([[1], [2]], ms.int64), seen, offsets).shape
        (2, 1)
    """

    reads_histories: ClassVar[bool] = True

    def __init__(
        self,
        schema: Schema,
        *,
        numbers: str = "concat",
        blocks: int = 1,
        heads: int = 1,
        positions: int | None = None,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        name: str = "bst",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            blocks=blocks,
            heads=heads,
            positions=positions,
            hidden=hidden,
            dropout=dropout,
            batch_norm=batch_norm,
            name=name,
            seed=seed,
        )
        check_blocks(blocks)
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed)
        self.candidates = Candidates(self.inputs, "BST")
        self.has_numbers = self.features.numbers > 0
        self.append = AppendRows()
        self.histories = len(self.candidates.dims)
        self.count = blocks
        made: list[nn.Cell] = []  # begins with all blocks of the first history
        assert self.schema is not None  # Candidates refuses arrays without a schema
        for dim, history in zip(self.candidates.dims, self.schema.histories, strict=True):
            places = history[0].most_values + 1 if positions is None else positions
            for block in range(blocks):
                first = places if block == 0 else 0
                made.append(HistoryTransformer(dim, heads, positions=first, dropout=dropout))
        self.blocks = nn.CellList(made)
        widths = [*self.inputs.widths, *self.candidates.dims]
        self.deep = MLP(widths, hidden, "relu", dropout, batch_norm, out_features=1)

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.deep.last_bias]

    def construct(self, ids: Tensor, *arrays: Any) -> Tensor:
        """Return the logits."""
        parts = self.inputs(ids, arrays[0]) if self.has_numbers else self.inputs(ids)
        triples = self.candidates(parts, arrays)
        outputs: Any = ()
        for k in range(self.histories):
            candidate, values, offsets = triples[k]
            x, ends = self.append(candidate, values, offsets)
            for block in range(self.count):
                x = self.blocks[k * self.count + block](x, ends)
            outputs += (ops.gather(x, ends[1:] - 1, 0),)
        return self.deep(*parts, *outputs)
