# SPDX-License-Identifier: Apache-2.0
"""Cross networks: products of features of bounded degree."""

from __future__ import annotations

import math

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.checks import check_int, check_one_of
from mindspore_rec.nn.mlp import ACTIVATIONS

__all__ = ["CrossNet", "CrossNetMix", "CrossNetV2"]

_MOST_UNITS = 1 << 20
_MOST_LAYERS = 64
_MOST_EXPERTS = 1024
_HIGHEST_RANK = 8192


class CrossNet(nn.Cell):
    r"""Cross network of DCN: each layer multiplies the input by one learned number a row.

    .. math::
        x_{l+1} = x_0 \, (x_l^\top w_l) + b_l + x_l, \quad l = 0, \dots, L - 1

    with :math:`w_l, b_l` of the input's width. The output is :math:`x_L`, polynomials of the input
    of degree up to L + 1. Weights start as Glorot & Bengio (2010), normal; biases as 0.
    `mindspore.set_seed` decides the draw.

    By induction :math:`x_l = \alpha_l x_0 + \sum_{k<l} b_k` with one number :math:`\alpha_l` a row.
    So all layers are one matrix product and one pass over the input, however many there are.

    Source: Wang et al., "Deep & Cross Network for Ad Click Predictions", ADKDD 2017,
    https://doi.org/10.1145/3124749.3124754.

    Args:
        in_features: width of the input, 1 to 2**20.
        layers: number of cross layers L, 1 to 64. Default: 2.

    Inputs:
        x: float32 Tensor `[B, in_features]`.

    Outputs:
        float32 Tensor `[B, in_features]`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.nn import CrossNet
        >>> cross = CrossNet(6, layers=3)
        >>> cross(Tensor(np.ones((5, 6), np.float32))).shape
        (5, 6)
    """

    def __init__(self, in_features: int, layers: int = 2) -> None:
        super().__init__()
        width = check_int("in_features", in_features, 1, _MOST_UNITS)
        self.layers = check_int("layers", layers, 1, _MOST_LAYERS)
        self.out_features = width
        self.weight = _weight("weight", (self.layers, width), width, 1)
        self.bias = _zeros("bias", (self.layers, width))
        self.earlier = Tensor(np.tril(np.ones((self.layers, self.layers), np.float32), -1))
        self.products = ops.MatMul(transpose_b=True)

    def construct(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, float32 `[B, in_features]`."""
        of_input = ops.split(self.products(x, self.weight), 1, 1)
        of_biases = (self.products(self.weight, self.bias) * self.earlier).sum(1)
        factor = 1 + of_input[0]
        for k in range(1, self.layers):
            factor = factor + factor * of_input[k] + of_biases[k]
        return factor * x + self.bias.sum(0)


class CrossNetV2(nn.Cell):
    r"""Cross network of DCN-V2: each layer multiplies the input by a linear map, unit by unit.

    .. math::
        x_{l+1} = x_0 \odot (W_l x_l + b_l) + x_l, \quad l = 0, \dots, L - 1

    with a square matrix :math:`W_l` a layer; the output is :math:`x_L`. Weights start as Glorot &
    Bengio (2010), normal; biases as 0. `mindspore.set_seed` decides the draw.

    Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
    Learning to Rank Systems", WWW 2021, https://doi.org/10.1145/3442381.3450078.

    Args:
        in_features: width of the input, 1 to 2**20.
        layers: number of cross layers L, 1 to 64. Default: 2.

    Inputs:
        x: float32 Tensor `[B, in_features]`.

    Outputs:
        float32 Tensor `[B, in_features]`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.nn import CrossNetV2
        >>> cross = CrossNetV2(6, layers=3)
        >>> cross(Tensor(np.ones((5, 6), np.float32))).shape
        (5, 6)
    """

    def __init__(self, in_features: int, layers: int = 2) -> None:
        super().__init__()
        width = check_int("in_features", in_features, 1, _MOST_UNITS)
        count = check_int("layers", layers, 1, _MOST_LAYERS)
        self.out_features = width
        weight = Normal(math.sqrt(1 / width))
        self.maps = nn.CellList(
            [nn.Dense(width, width, weight_init=weight, bias_init="zeros") for _ in range(count)]
        )

    def construct(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, float32 `[B, in_features]`."""
        crossed = x
        for linear in self.maps:
            crossed = x * linear(crossed) + crossed
        return crossed


class CrossNetMix(nn.Cell):
    r"""Cross network of DCN-V2 whose maps are mixtures of low-rank experts.

    .. math::
        x_{l+1} = \sum_{e=1}^{E} g(x_l)_e \, x_0 \odot (U_l^e \, h_l^e(x_l) + b_l) + x_l, \quad
        g(x) = \text{softmax}(G x)

    where, with activation a,

    .. math::
        h_l^e(x) = a(C_l^e \, a({V_l^e}^\top x)), \quad \text{or without one} \quad
        h_l^e(x) = {V_l^e}^\top x

    with :math:`U, V` of `[in_features, rank]` and :math:`C` of `[rank, rank]` for each layer and
    expert. The gates G, `[experts, in_features]` without bias, are the same for all layers; one
    expert has none. Every matrix starts as Glorot & Bengio (2010), normal, with the fans of its own
    and not of all experts together; biases as 0. `mindspore.set_seed` decides the draw.

    A layer's experts are computed together: one product for all V, one for all U, a batched one for
    all C.

    Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
    Learning to Rank Systems", WWW 2021, https://doi.org/10.1145/3442381.3450078. That the layers
    share their gates, and the defaults, are as in FuxiCTR.

    Args:
        in_features: width of the input, 1 to 2**20.
        layers: number of cross layers L, 1 to 64. Default: 2.
        experts: number of experts E of a layer, 1 to 1024. Default: 4.
        rank: width of an expert, 1 to 8192; useful below `in_features`. Default: 32.
        activation: activation of the experts, as for `MLP`; None for linear experts, without C.
            Default: 'tanh'.

    Inputs:
        x: float32 Tensor `[B, in_features]`.

    Outputs:
        float32 Tensor `[B, in_features]`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.nn import CrossNetMix
        >>> cross = CrossNetMix(6, layers=2, experts=3, rank=2)
        >>> x = Tensor(np.ones((5, 6), np.float32))
        >>> cross(x).shape, cross.gate_weights(x).shape
        ((5, 6), (5, 3))
    """

    def __init__(
        self,
        in_features: int,
        layers: int = 2,
        experts: int = 4,
        rank: int = 32,
        activation: str | None = "tanh",
    ) -> None:
        super().__init__()
        width = check_int("in_features", in_features, 1, _MOST_UNITS)
        count = check_int("layers", layers, 1, _MOST_LAYERS)
        self.experts = check_int("experts", experts, 1, _MOST_EXPERTS)
        rank = check_int("rank", rank, 1, _HIGHEST_RANK)
        if activation is not None:
            activation = check_one_of("activation", activation, ACTIVATIONS)
        self.out_features = width
        self.mixtures = nn.CellList(
            [_LowRankExperts(width, self.experts, rank, activation) for _ in range(count)]
        )
        if self.experts > 1:
            self.gates = nn.Dense(
                width, self.experts, weight_init=Normal(math.sqrt(2 / (width + 1))), has_bias=False
            )

    def construct(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, float32 `[B, in_features]`."""
        crossed = x
        for mixture in self.mixtures:
            crossed = x * mixture(crossed, self.gate_weights(crossed)) + crossed
        return crossed

    def gate_weights(self, x: Tensor) -> Tensor:
        """Return the weights of a layer's experts for its input x: float32 Tensor `[B, experts]`,
        whose rows sum to 1."""
        if self.experts == 1:
            return ops.ones_like(x[:, :1])
        return ops.softmax(self.gates(x), 1)


class _LowRankExperts(nn.Cell):
    """Weighted sum of one layer's experts, before it multiplies the network's input."""

    def __init__(self, width: int, experts: int, rank: int, activation: str | None) -> None:
        super().__init__()
        self.experts, self.rank = experts, rank
        self.v = _weight("v", (width, experts * rank), width, rank)
        self.u = _weight("u", (experts * rank, width), rank, width)
        self.bias = _zeros("bias", (width,))
        self.linear = activation is None
        if activation is not None:
            self.activation = nn.get_activation(activation)
            # [E, in, out]: the transpose of the formula's C
            self.c = _weight("c", (experts, rank, rank), rank, rank)
        self.of_each = ops.BatchMatMul()

    def construct(self, x: Tensor, gates: Tensor) -> Tensor:
        units = ops.matmul(x, self.v)
        if not self.linear:
            units = self.activation(units).reshape((-1, self.experts, self.rank))
            units = ops.transpose(self.of_each(ops.transpose(units, (1, 0, 2)), self.c), (1, 0, 2))
            units = self.activation(units)
        if self.experts > 1:
            units = units.reshape((-1, self.experts, self.rank)) * ops.expand_dims(gates, 2)
        # The sum over experts is inside the product; the gates sum to 1, so the bias is added once.
        return ops.matmul(units.reshape((-1, self.experts * self.rank)), self.u) + self.bias


def _weight(name: str, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Parameter:
    return Parameter(initializer(Normal(math.sqrt(2 / (fan_in + fan_out))), shape), name=name)


def _zeros(name: str, shape: tuple[int, ...]) -> Parameter:
    return Parameter(initializer("zeros", shape), name=name)
