# SPDX-License-Identifier: Apache-2.0
"""SASRec, self-attentive sequential recommendation."""

from __future__ import annotations

from mindspore import Tensor, nn

from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.histories import check_blocks
from mindspore_rec.train.models.next_item import NextItemNetwork
from mindspore_rec.train.nn.history_transformer import HistoryTransformer

__all__ = ["SASRec"]


class SASRec(NextItemNetwork):
    r"""Self-attentive sequential recommendation: dot product of user state and item vector.

    .. math::
        z = \sum_h \langle s_h + W_h x, c_h \rangle + w(x) + b, \quad
        s_h = \text{norm}(\text{blocks}_h([v_{h1}, ..., v_{hn}])_n)

    In the formula, the vectors of the events of history h are :math:`v_{hj}`, oldest first. Each
    vector is multiplied by the square root of its width. The vector :math:`c_h` belongs to the
    candidate, the item that the row scores. The state :math:`s_h` is the output of the blocks for
    the newest event, or 0 if the history is empty. A block is a `HistoryTransformer`, and the first
    block adds the vectors of positions. A matrix maps the row's other columns, x, to a vector that
    is added to the state. The linear part w has one weight for each id and one weight for each
    number of the row. The candidate also has a weight, which expresses how popular the item is.

    If the other columns describe the user and not the item, an item's score is the dot product of a
    user's vector and an item's vector, plus the item's weight.

    The candidate of a history is the row's category whose `table` equals the history's `table`. An
    `IntegerColumn` with this table also counts as a category. For a side column with keys, the
    vector of the key is appended to the vector of the event. The vector of the category with the
    same `table` as the side column is appended to the candidate's vector. Side columns of numbers,
    such as the times of events, are not read.

    Source: Kang & McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018,
    https://arxiv.org/abs/1808.09781. The network in the paper has no other columns and no linear
    part. The blocks in the paper normalize at other points of the computation.

    Args:
        schema: the `Schema` of the data, with at least one history.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        blocks: number of transformer blocks, 1 to 64. Default: 2, as in the paper.
        heads: number of heads of a block; must divide the width of an event's vector. Default: 1.
        positions: number of learned position vectors; 0 if positions have no vectors. The first
            position vector belongs to the newest event. Default: None, which means the `length` of
            the history.
        dropout: dropout probability of the blocks, in [0, 1). Default: 0.0.
        name: prefix of the tables' names. Default: 'sasrec'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        arrays: the arrays after `ids` in `Schema.inputs`: `numbers` if the schema has numbers, then
            the values and the offsets of each history.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        ValueError: the schema has no history, or not exactly one category shares the table of a
            history.

    Supported platforms:
        ``CPU``

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn
        >>> from mindspore_rec.models import SASRec
        >>> columns = [CategoryColumn("item", table="items"), HistoryColumn("seen", table="items")]
        >>> schema = Schema([*columns, LabelColumn("clicked")], embedding_dim=4)
        >>> net = SASRec(schema, heads=2, name="doc.sasrec")
        >>> seen, offsets = Tensor([7, 8, 9], ms.int64), Tensor([0, 3, 3], ms.int64)
        >>> net(Tensor([[1], [2]], ms.int64), seen, offsets).shape
        (2, 1)
    """

    def __init__(
        self,
        schema: Schema,
        *,
        numbers: str = "concat",
        blocks: int = 2,
        heads: int = 1,
        positions: int | None = None,
        dropout: float = 0.0,
        name: str = "sasrec",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            blocks=blocks,
            heads=heads,
            positions=positions,
            dropout=dropout,
            name=name,
            seed=seed,
        )
        check_blocks(blocks)

        def blocks_of(dim: int, history: tuple[Column, ...]) -> list[nn.Cell]:
            places = history[0].most_values if positions is None else positions
            return [_Block(dim, heads, 0 if k else places, dropout) for k in range(blocks)]

        self._make(blocks_of)


class _Block(nn.Cell):
    """Block with a `HistoryTransformer`; the times of events are ignored."""

    def __init__(self, dim: int, heads: int, positions: int, dropout: float) -> None:
        super().__init__()
        self.block = HistoryTransformer(dim, heads, positions=positions, dropout=dropout)

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor) -> Tensor:
        """Return a vector for each value."""
        return self.block(values, offsets)
