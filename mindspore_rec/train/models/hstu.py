# SPDX-License-Identifier: Apache-2.0
"""HSTU, the hierarchical sequential transduction unit, as a network from a schema."""

from __future__ import annotations

from mindspore import Tensor, nn

from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.histories import check_blocks
from mindspore_rec.train.models.next_item import NextItemNetwork, times_of
from mindspore_rec.train.nn import hstu

__all__ = ["HSTU"]


class HSTU(NextItemNetwork):
    r"""HSTU: product of an item's vector and a history's state (attention without softmax).

    The formula is the same as for `SASRec`, but the blocks are `nn.HSTU` cells:

    .. math::
        z = \sum_h \langle s_h + W_h x, c_h \rangle + w(x) + b, \quad
        s_h = \text{norm}(\text{blocks}_h([v_{h1}, ..., v_{hn}])_n)

    A block adds two learned biases to the attention score of two events. One bias depends on the
    distance of the events in the history, the other bias on the time between the events. The first
    side column (`side_of`) with ``values="int64"`` contains the times of the history's events, in
    any unit. Without a column of times, a block adds only the bias of the distance.

    Candidates, all side columns except the times, all columns outside the histories, and the linear
    part work as in `SASRec`.

    Source: Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers
    for Generative Recommendations", ICML 2024, https://arxiv.org/abs/2402.17152.

    Args:
        schema: the `Schema` of the data, with at least one history.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        blocks: number of blocks, 1 to 64. Default: 2.
        heads: number of heads of a block; must divide the width of an event's vector. Default: 1.
        time_buckets: number of time buckets in a block, 0 to 48. Each bucket has a learned bias.
            The buckets are the same as in `HistoryTransformer`. Default: 32; the last bucket then
            contains differences of 2**30 and more.
        dropout: dropout probability of the blocks, in [0, 1). Default: 0.0.
        name: prefix of the tables' names. Default: 'hstu'.
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
        >>> from mindspore_rec.models import HSTU
        >>> seen = [HistoryColumn("seen", table="items")]
        >>> seen += [HistoryColumn("seen_at", side_of="seen", values="int64")]
        >>> columns = [CategoryColumn("item", table="items"), *seen, LabelColumn("clicked")]
        >>> net = HSTU(Schema(columns, embedding_dim=4), heads=2, name="doc.hstu")
        >>> items, times = Tensor([7, 8, 9], ms.int64), Tensor([60, 90, 180], ms.int64)
        >>> net(Tensor([[1], [2]], ms.int64), items, times, Tensor([0, 3, 3], ms.int64)).shape
        (2, 1)
    """

    def __init__(
        self,
        schema: Schema,
        *,
        numbers: str = "concat",
        blocks: int = 2,
        heads: int = 1,
        time_buckets: int = 32,
        dropout: float = 0.0,
        name: str = "hstu",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            blocks=blocks,
            heads=heads,
            time_buckets=time_buckets,
            dropout=dropout,
            name=name,
            seed=seed,
        )
        check_blocks(blocks)

        def blocks_of(dim: int, history: tuple[Column, ...]) -> list[nn.Cell]:
            buckets = 0 if times_of(history) is None else time_buckets
            length = history[0].most_values
            return [_Block(dim, length, heads, buckets, dropout) for _ in range(blocks)]

        self._make(blocks_of)


class _Block(nn.Cell):
    """Block with an `nn.HSTU` layer, which ignores the times if there are no time buckets."""

    def __init__(self, dim: int, length: int, heads: int, buckets: int, dropout: float) -> None:
        super().__init__()
        self.block = hstu.HSTU(dim, length, heads, buckets, dropout)
        self.by_time = buckets > 0

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor) -> Tensor:
        """Return a vector for each value."""
        return self.block(values, offsets, times if self.by_time else None)
