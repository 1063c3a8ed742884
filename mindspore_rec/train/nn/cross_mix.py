# SPDX-License-Identifier: Apache-2.0
"""CrossNetMix: a cross network whose layers are mixtures of low-rank experts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.train.nn.cross_parts import CrossLayers, glorot_normal, zeros
from mindspore_rec.train.nn.fused.program import Columns, Part, Program
from mindspore_rec.train.nn.mlp import ACTIVATIONS

__all__ = ["CrossNetMix"]

_MOST_EXPERTS = 1024
_HIGHEST_RANK = 8192


class CrossNetMix(CrossLayers):
    r"""Cross network of DCN-V2 with a mixture of low-rank experts in each layer.

    .. math::
        x_{l+1} = \sum_{e=1}^{E} g(x_l)_e \, x_0 \odot (U_l^e \, h_l^e(x_l) + b_l) + x_l, \quad
        g(x) = \text{softmax}(G x)

    where, with activation a,

    .. math::
        h_l^e(x) = a(C_l^e \, a({V_l^e}^\top x)), \quad \text{or without one} \quad
        h_l^e(x) = {V_l^e}^\top x

    Each expert in each layer has its own matrices :math:`U, V`, `[in_features, rank]`, and
    :math:`C`, `[rank, rank]`. All layers share the gates G, a matrix `[experts, in_features]`
    without bias; a network with one expert per layer has no gates. Every matrix starts with the
    normal initialization of Glorot & Bengio (2010), with the fan-in and fan-out of one expert.
    Biases start with 0. `mindspore.set_seed` seeds the initialization.

    In each layer, one matrix product multiplies by the V of all experts, and another matrix product
    multiplies by the U of all experts. The product with C is computed separately for each expert.
    On the CPU, one operator computes all layers, forward and backward, with matrix products by
    oneDNN.

    Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
    Learning to Rank Systems", WWW 2021, https://doi.org/10.1145/3442381.3450078. The shared gates
    and the defaults are the same as in FuxiCTR.

    Args:
        in_features: width of the input, 1 to 2**20; or the widths of several inputs, which are
            joined without an extra copy.
        layers: number of cross layers L, 1 to 64. Default: 2.
        experts: number of experts E of a layer, 1 to 1024. Default: 4.
        rank: width of an expert, 1 to 8192; choose a width below `in_features`. Default: 32.
        activation: activation of the experts; see `MLP`. None selects linear experts, which have no
            matrix C. Default: 'tanh'.
        compute_dtype: type to which the factors of products are rounded; see `MLP`.
            Default: 'float32'.

    Inputs:
        x: float32 Tensor `[B, in_features]`, or, for several widths, one Tensor `[B, ...]` per
            width w, with w floats per row.

    Outputs:
        float32 Tensor `[B, out_features]`.

    Attributes:
        out_features: width of the output, which is the total width of all inputs.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError, ValueError, RuntimeError: the number or the widths of the inputs are wrong.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import CrossNetMix
        >>> cross = CrossNetMix(6, layers=2, experts=3, rank=2)
        >>> x = Tensor(np.ones((5, 6), np.float32))
        >>> cross(x).shape, cross.gate_weights(x).shape
        ((5, 6), (5, 3))
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        layers: int = 2,
        experts: int = 4,
        rank: int = 32,
        activation: str | None = "tanh",
        *,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(in_features, layers, compute_dtype)
        width = self.out_features
        self.experts = check_int("experts", experts, 1, _MOST_EXPERTS)
        self.rank = check_int("rank", rank, 1, _HIGHEST_RANK)
        if activation is not None:
            activation = check_one_of("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.mixtures = nn.CellList(
            [
                _LowRankExperts(width, self.experts, self.rank, activation)
                for _ in range(self.layers)
            ]
        )
        if self.experts > 1:
            self.gates = nn.Dense(
                width, self.experts, weight_init=Normal(math.sqrt(2 / (width + 1))), has_bias=False
            )
        self.of_each = ops.BatchMatMul()
        self._fuse()

    def plain(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, computed with MindSpore's own operators."""
        crossed = x
        for mixture in self.mixtures:
            crossed = x * self._mixed(mixture, crossed) + crossed
        return crossed

    def gate_weights(self, x: Tensor) -> Tensor:
        """Return the experts' gate weights, float32 `[B, experts]`, for a layer with input x.

        The gate weights of each row sum to 1.
        """
        if self.experts == 1:
            return ops.ones_like(x[:, :1])
        return ops.softmax(self.through(self.gates, x), 1)

    def _mixed(self, mixture: Any, x: Tensor) -> Tensor:
        """Return the weighted sum of a layer's experts, before the multiplication by the input."""
        shape = (-1, self.experts, self.rank)
        units = self.product(ops.matmul(self.factor(x), self.factor(mixture.v)))
        if not mixture.linear:
            units = mixture.activation(units).reshape(shape)
            units = self.factor(ops.transpose(units, (1, 0, 2)))
            units = self.product(self.of_each(units, self.factor(mixture.c)))
            units = mixture.activation(ops.transpose(units, (1, 0, 2)))
        if self.experts > 1:
            units = units.reshape(shape) * ops.expand_dims(self.gate_weights(x), 2)
        # The product with U also sums over the experts, because U stacks the matrices of all
        # experts. The gates sum to 1 over the experts, so the bias is added only once.
        units = self.factor(units.reshape((-1, self.experts * self.rank)))
        return self.product(ops.matmul(units, self.factor(mixture.u))) + mixture.bias

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        parameters: Any = ()
        if self.experts > 1:
            parameters = (self.gates.weight,)
        for mixture in self.mixtures:
            parameters = (*parameters, mixture.v, mixture.u, mixture.bias)
            if not mixture.linear:
                parameters = (*parameters, mixture.c)
        return parameters

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layers to a `Program`, and return the output of the last layer."""
        crossed = x
        gates = program.parameter() if self.experts > 1 else None
        for k in range(len(self.mixtures)):
            v, u, bias = program.parameter(), program.parameter(), program.parameter()
            units = self._experts(program, crossed, v)
            if gates is not None:
                scores = program.linear(crossed, self.experts, gates)
                units = program.scale_groups(units, program.softmax(scores, self.experts))
            mapped = program.linear(units, x.width, u, bias, input_major=True)
            last = output if k + 1 == len(self.mixtures) else None
            crossed = program.cross_combine(x, mapped, crossed, last)
        return crossed

    def _experts(self, program: Program, x: Columns, v: Part) -> Columns:
        """Add a layer's experts to a `Program`, and return the outputs `[B, experts * rank]`."""
        activation = self.activation or "none"
        units = program.linear(
            x, self.experts * self.rank, v, activation=activation, input_major=True
        )
        if self.activation is None:
            return units
        c = program.parameter()
        mapped = program.value(units.width)
        for e in range(self.experts):
            at = e * self.rank
            program.linear(
                units.part(at, self.rank),
                self.rank,
                Part(c.parameter, at * self.rank),  # [E, in, out]
                activation=activation,
                input_major=True,
                output=mapped.part(at, self.rank),
            )
        return mapped


class _LowRankExperts(nn.Cell):
    """Weight matrices and bias of one layer's experts."""

    def __init__(self, width: int, experts: int, rank: int, activation: str | None) -> None:
        super().__init__()
        self.v = glorot_normal("v", (width, experts * rank), width, rank)
        self.u = glorot_normal("u", (experts * rank, width), rank, width)
        self.bias = zeros("bias", (width,))
        self.linear = activation is None
        if activation is not None:
            self.activation = nn.get_activation(activation)
            # [E, in, out]: the transpose of the formula's C
            self.c = glorot_normal("c", (experts, rank, rank), rank, rank)
