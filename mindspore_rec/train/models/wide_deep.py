# SPDX-License-Identifier: Apache-2.0
"""The Wide & Deep network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, Tensor

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import FirstOrder, InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.fuse import fuse
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["WideDeep"]


class WideDeep(Network):
    r"""Wide & Deep: the sum of a linear model that memorizes and a perceptron that generalizes.

    .. math::
        z = b + \sum_f w_{i_f} + u^\top x + \text{MLP}(r)

    In the formulas, r is the row that `InputLayer` makes from ids and numbers x. The tables of the
    wide part contain the weights w, and the tables of the deep part contain the embeddings.

    Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016,
    https://doi.org/10.1145/2988450.2988454.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout probability of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        members: number of ensemble members, which share layers and tables, 1 to 256; see `Network`.
            Default: 1.
        name: prefix of the tables' names. Default: 'wide_deep'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Attributes:
        wide: the linear model.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import WideDeep
        >>> columns = [CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")]
        >>> schema = Schema(columns, embedding_dim=4)
        >>> net = WideDeep(schema, hidden=(8,), name="doc.wide_deep")
        >>> net(Tensor([[1, 2]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        schema: Schema | Features,
        *,
        numbers: str = "concat",
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        members: int = 1,
        name: str = "wide_deep",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            hidden=hidden,
            dropout=dropout,
            batch_norm=batch_norm,
            members=members,
            name=name,
            seed=seed,
        )
        self._set_members(members)
        self.wide = FirstOrder(self.features, f"{name}.wide", seed, members)
        self.inputs = InputLayer(self.features, numbers, f"{name}.deep", seed, members)
        self.deep = MLP(
            self.inputs.widths, hidden, "relu", dropout, batch_norm, out_features=members
        )
        fuse(self)

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.deep.last_bias]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        linear = self.wide(ids, numbers)
        return self._answer(linear + self.deep(*self.inputs(ids, numbers)))
