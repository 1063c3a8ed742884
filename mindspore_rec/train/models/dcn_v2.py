# SPDX-License-Identifier: Apache-2.0
"""The DCN-V2 network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import XavierUniform

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.cross import CrossNetV2
from mindspore_rec.train.nn.cross_mix import CrossNetMix
from mindspore_rec.train.nn.fuse import fuse
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["CrossMixture", "DCNv2"]

_CROSSES = ("matrix", "mixture", "stacked_matrix", "stacked_mixture")


@dataclass(frozen=True)
class CrossMixture:
    """Settings of DCN-V2's cross layers with low-rank experts; see `CrossNetMix`.

    Args:
        experts: number of experts in a layer. Default: 4.
        rank: width of an expert. Default: 32.
        stacked: whether the perceptron reads the output of the cross layers. Default: False, which
            means that the perceptron reads the input of the cross layers.
    """

    experts: int = 4
    rank: int = 32
    stacked: bool = False


class DCNv2(Network):
    r"""DCN-V2: a cross network (full matrices or low-rank experts) beside or below a perceptron.

    .. math::
        z = w^\top [\text{cross}(x), \text{MLP}(x)] + b \quad \text{(parallel)}, \qquad
        z = w^\top \text{MLP}(\text{cross}(x)) + b \quad \text{(stacked)}

    In the formulas, x is the row that `InputLayer` makes from ids and numbers.

    Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
    Learning to Rank Systems", WWW 2021, https://doi.org/10.1145/3442381.3450078.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        cross: the cross network. The text 'matrix' selects a `CrossNetV2` beside the perceptron;
            the text 'stacked_matrix' selects a `CrossNetV2` below the perceptron. A `CrossMixture`,
            or a mapping of its fields, selects a `CrossNetMix`. The texts 'mixture' and
            'stacked_mixture' select a `CrossNetMix` with the default settings of `CrossMixture`.
            Default: 'matrix'.
        layers: number of cross layers. Default: 3.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout probability of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        members: number of ensemble members, which share layers and tables, 1 to 256; see `Network`.
            Default: 1.
        name: prefix of the tables' names. Default: 'dcn_v2'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, is out of range or contradicts
            another argument.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import CrossMixture, DCNv2
        >>> columns = [CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")]
        >>> schema = Schema(columns, embedding_dim=4)
        >>> net = DCNv2(schema, cross=CrossMixture(rank=2), hidden=(8,), name="doc.dcn_v2")
        >>> net(Tensor([[1, 2]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        schema: Schema | Features,
        *,
        numbers: str = "concat",
        cross: str | CrossMixture | Mapping[str, int] = "matrix",
        layers: int = 3,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        members: int = 1,
        name: str = "dcn_v2",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            cross=cross,
            layers=layers,
            hidden=hidden,
            dropout=dropout,
            batch_norm=batch_norm,
            members=members,
            name=name,
            seed=seed,
        )
        self._set_members(members)
        mixture, self.stacked = _cross_of(cross)
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed, members)
        widths = self.inputs.widths
        if mixture is None:
            self.cross: nn.Cell = CrossNetV2(widths, layers)
        else:
            self.cross = CrossNetMix(widths, layers, mixture.experts, mixture.rank)
        deep_input = self.cross.out_features if self.stacked else widths
        self.deep = MLP(deep_input, hidden, "relu", dropout, batch_norm)
        joined = self.deep.out_features + (0 if self.stacked else self.inputs.width)
        self.output = nn.Dense(joined, members, weight_init=XavierUniform(), bias_init="zeros")
        fuse(self)

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.output.bias]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        row = self.inputs(ids, numbers)
        crossed = self.cross(*row)
        if self.stacked:
            return self._answer(self.output(self.deep(crossed)))
        return self._answer(self.output(ops.concat((crossed, self.deep(*row)), 1)))


def _cross_of(cross: Any) -> tuple[CrossMixture | None, bool]:
    """Return the experts' settings (None for full matrices), and True if the network is stacked."""
    if isinstance(cross, Mapping):
        try:
            cross = CrossMixture(**cross)
        except TypeError as error:
            raise ValueError(
                "cross must have only the keys experts, rank and stacked, got "
                f"{', '.join(map(str, cross))}"
            ) from error
    if isinstance(cross, CrossMixture):
        return cross, cross.stacked
    kind = check_one_of("cross", cross, _CROSSES)
    stacked = kind.startswith("stacked")
    return (CrossMixture(stacked=stacked) if kind.endswith("mixture") else None), stacked
