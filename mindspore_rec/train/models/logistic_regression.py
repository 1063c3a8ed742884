# SPDX-License-Identifier: Apache-2.0
"""Logistic regression, the baseline of the other networks."""

from __future__ import annotations

import math

import mindspore as ms
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
    columns, so the gain of other models over it is what they learn of interactions.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        name: prefix of the tables' names. Default: 'logistic_regression'.
        seed: seed of the tables; all weights of ids start at 0. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Attributes:
        linear: the weights of ids and numbers.
        bias: b, a Parameter `[1]`, which starts at 0; see `start_at`.

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

    # A weight is a logit's share, so it has further to go than the weights of a perceptron.
    default_learning_rate = 0.02

    def __init__(
        self, schema: Schema | Features, *, name: str = "logistic_regression", seed: int = 0
    ) -> None:
        super().__init__(schema, name=name, seed=seed)
        self.linear = FirstOrder(self.features, f"{name}.first_order", seed)
        self.bias = Parameter(ops.zeros((1,)), name="bias")

    def start_at(self, mean: float) -> None:
        """Set the bias so that the model predicts the mean label of the training rows.

        The weights then learn only the differences of rows from the mean. Without such a start, a
        short training may end below the mean of a label that is far from 0.

        Args:
            mean: mean of the label; if it has two values, the share of rows with label 1.

        Raises:
            ValueError: `mean` is not finite.
        """
        if not math.isfinite(mean):
            raise ValueError(f"mean must be finite, got {mean}")
        schema = self.schema
        if schema is None or schema.labels[0].binary:
            rate = min(max(mean, 1e-6), 1 - 1e-6)
            mean = math.log(rate / (1 - rate))
        self.bias.set_data(Tensor([mean], ms.float32))

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        return self.linear(ids, numbers) + self.bias
