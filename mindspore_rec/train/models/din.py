# SPDX-License-Identifier: Apache-2.0
"""The Deep Interest network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mindspore import Parameter, Tensor, nn

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.candidates import Candidates
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.mlp import MLP
from mindspore_rec.train.nn.target_attention import TargetAttention

__all__ = ["DIN"]


class DIN(Network):
    r"""Deep Interest: a perceptron over the row and its histories; attention pools each history.

    .. math::
        z = \text{MLP}([x, y_1, c_1 \odot y_1, y_2, c_2 \odot y_2, ...]), \quad
        y_h = \sum_j a_h(c_h, v_{hj})\, v_{hj}

    In the formula, x is the row that `InputLayer` makes from ids and numbers. In history h, the
    events have the vectors :math:`v_{hj}`. The vector of the candidate, the item that the row
    scores, is :math:`c_h`. The sum over the events is computed by a `TargetAttention`, in which
    events that are similar to the candidate have more weight. An empty history has the sum 0.

    The candidate of a history is the row's category whose `table` equals the history's `table`. An
    `IntegerColumn` with the history's `table` also counts as a category. For a side column with
    keys, the vector of the key is appended to the vector of the event. The vector of the category
    with the same `table` as the side column is appended to the candidate's vector. Side columns of
    numbers, such as the times of events, are not read.

    Source: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018,
    https://arxiv.org/abs/1706.06978. As in the authors' program, the perceptron also reads the
    product of candidate and sum. The perceptron uses rectifiers.

    Args:
        schema: the `Schema` of the data, with at least one history.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        attention_hidden: widths of the hidden layers of the MLP that computes the attention
            weights. Default: (80, 40).
        attention_activation: activation of the attention's hidden layers, 'dice' or 'prelu'.
            Default: 'dice'.
        softmax: whether a softmax makes the weights of a history sum to 1. Default: False, as in
            the paper.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout probability of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        name: prefix of the tables' names. Default: 'din'.
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
        >>> from mindspore_rec.models import DIN
        >>> columns = [CategoryColumn("item", table="items"), HistoryColumn("seen", table="items")]
        >>> schema = Schema([*columns, LabelColumn("clicked")], embedding_dim=4)
        >>> net = DIN(schema, hidden=(8,), name="doc.din")
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
        attention_hidden: Sequence[int] = (80, 40),
        attention_activation: str = "dice",
        softmax: bool = False,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        name: str = "din",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            attention_hidden=attention_hidden,
            attention_activation=attention_activation,
            softmax=softmax,
            hidden=hidden,
            dropout=dropout,
            batch_norm=batch_norm,
            name=name,
            seed=seed,
        )
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed)
        self.candidates = Candidates(self.inputs, "DIN")
        self.has_numbers = self.features.numbers > 0
        self.pools = nn.CellList(
            [
                TargetAttention(dim, attention_hidden, attention_activation, softmax)
                for dim in self.candidates.dims
            ]
        )
        pooled = [width for dim in self.candidates.dims for width in (dim, dim)]
        self.deep = MLP(
            [*self.inputs.widths, *pooled], hidden, "relu", dropout, batch_norm, out_features=1
        )

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.deep.last_bias]

    def construct(self, ids: Tensor, *arrays: Any) -> Tensor:
        """Return the logits."""
        parts = self.inputs(ids, arrays[0]) if self.has_numbers else self.inputs(ids)
        histories = self.candidates(parts, arrays)
        pooled: Any = ()
        for k in range(len(self.pools)):
            candidate, values, offsets = histories[k]
            y = self.pools[k](candidate, values, offsets)
            pooled += (y, candidate * y)
        return self.deep(*parts, *pooled)
