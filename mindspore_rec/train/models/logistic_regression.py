# SPDX-License-Identifier: Apache-2.0
"""Logistic regression, the baseline of the other networks."""

from __future__ import annotations

from mindspore import Parameter, Tensor, ops

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import FirstOrder
from mindspore_rec.train.models.network import Network

__all__ = ["LogisticRegression"]


class LogisticRegression(Network):
    r"""Logistic regression on ids and numbers: one weight per id and one per number.

    .. math::
        z = b + \sum_f w_{i_f} + u^\top x

    For a list of ids, :math:`w_{i_f}` is the mean of the weights. The model has no interactions of
    columns, so a comparison with another model shows the value of interactions.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        name: prefix of the tables' names. Default: 'logistic_regression'.
        seed: seed of the tables, as in `TableConfig`. The weights of ids start at 0 for any seed.
            Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Attributes:
        linear: the weights of ids and numbers.
        bias: b, a Parameter `[1]`, which starts at 0.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import LogisticRegression
        >>> columns = [CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")]
        >>> schema = Schema(columns, embedding_dim=4)
        >>> net = LogisticRegression(schema, name="doc.logistic_regression")
        >>> net(Tensor([[1, 2]], ms.int64)).asnumpy().tolist()
        [[0.0]]
    """

    # Each weight is added directly to the logit, so the learning rate is higher than for a
    # perceptron.
    default_learning_rate = 0.02

    def __init__(
        self, schema: Schema | Features, *, name: str = "logistic_regression", seed: int = 0
    ) -> None:
        super().__init__(schema, name=name, seed=seed)
        self.linear = FirstOrder(self.features, f"{name}.first_order", seed)
        self.bias = Parameter(ops.zeros((1,)), name="bias")

    @property
    def last_biases(self) -> list[Parameter]:
        """The bias."""
        return [self.bias]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        return self.linear(ids, numbers) + self.bias
