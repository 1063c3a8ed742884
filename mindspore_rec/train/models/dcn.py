# SPDX-License-Identifier: Apache-2.0
"""The Deep & Cross network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import XavierUniform

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.cross import CrossNet
from mindspore_rec.train.nn.fuse import fuse
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["DCN"]


class DCN(Network):
    r"""Deep & Cross: a cross network and a perceptron over one row, followed by a linear layer.

    .. math::
        z = w^\top [\text{cross}(x), \text{MLP}(x)] + b

    In the formulas, x is the row that `InputLayer` makes from ids and numbers.

    Source: Wang et al., "Deep & Cross Network for Ad Click Predictions", ADKDD 2017,
    https://doi.org/10.1145/3124749.3124754.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        layers: number of cross layers. Default: 3.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout probability of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        members: number of ensemble members, which share layers and tables, 1 to 256; see `Network`.
            Default: 1.
        name: prefix of the tables' names. Default: 'dcn'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import DCN
        >>> columns = [CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")]
        >>> schema = Schema(columns, embedding_dim=4)
        >>> net = DCN(schema, hidden=(8,), name="doc.dcn")
        >>> net(Tensor([[1, 2]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        schema: Schema | Features,
        *,
        numbers: str = "concat",
        layers: int = 3,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        members: int = 1,
        name: str = "dcn",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            layers=layers,
            hidden=hidden,
            dropout=dropout,
            batch_norm=batch_norm,
            members=members,
            name=name,
            seed=seed,
        )
        self._set_members(members)
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed, members)
        self.cross = CrossNet(self.inputs.widths, layers)
        self.deep = MLP(self.inputs.widths, hidden, "relu", dropout, batch_norm)
        width = self.cross.out_features + self.deep.out_features
        self.output = nn.Dense(width, members, weight_init=XavierUniform(), bias_init="zeros")
        fuse(self)

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.output.bias]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        row = self.inputs(ids, numbers)
        return self._answer(self.output(ops.concat((self.cross(*row), self.deep(*row)), 1)))
