# SPDX-License-Identifier: Apache-2.0
"""CrossNet and CrossNetV2: networks that compute products of features, up to a bounded degree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal

from mindspore_rec.train.nn.cross_parts import CrossLayers, glorot_normal, zeros
from mindspore_rec.train.nn.fused.program import Columns, Program

__all__ = ["CrossNet", "CrossNetV2"]


class CrossNet(CrossLayers):
    r"""Cross network of DCN: each layer multiplies each row of the input by one number.

    .. math::
        x_{l+1} = x_0 \, (x_l^\top w_l) + b_l + x_l, \quad l = 0, \dots, L - 1

    The vectors :math:`w_l, b_l` have the input's width. The output :math:`x_L` consists of
    polynomials of the input, of degree up to L + 1. Weights start with the normal initialization of
    Glorot & Bengio (2010), biases with 0. `mindspore.set_seed` seeds the initialization.

    By induction :math:`x_l = \alpha_l x_0 + \sum_{k<l} b_k` with one number :math:`\alpha_l` per
    row. One matrix product and one pass over the input compute any number of layers. On the CPU,
    one operator computes all layers, forward and backward.

    Source: Wang et al., "Deep & Cross Network for Ad Click Predictions", ADKDD 2017,
    https://doi.org/10.1145/3124749.3124754.

    Args:
        in_features: width of the input, 1 to 2**20; or the widths of several inputs, which are
            joined without an extra copy.
        layers: number of cross layers L, 1 to 64. Default: 2.
        compute_dtype: type to which the factors of products with rows are rounded; see `MLP`.
            Rounding to bfloat16 saves no time in this layer, because a product of rows with a
            single vector takes as long as reading the rows. Default: 'float32'.

    Inputs:
        x: float32 Tensor `[B, in_features]`, or, for several widths, one Tensor `[B, ...]` per
            width w, with w floats per row. A bfloat16 Tensor is also accepted, for example from a
            lookup with `output_dtype=bfloat16`.

    Outputs:
        float32 Tensor `[B, out_features]`.

    Attributes:
        out_features: width of the output, which is the total width of all inputs.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError, ValueError, RuntimeError: the number or the widths of the inputs are wrong.

    Example:
        >>> from mindspore_rec.nn import CrossNet
        >>> cross = CrossNet(6, layers=3)
        >>> cross(Tensor(np.ones((5, 6), np.float32))).shape
        (5, 6)
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        layers: int = 2,
        *,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(in_features, layers, compute_dtype)
        width = self.out_features
        self.weight = glorot_normal("weight", (self.layers, width), width, 1)
        self.bias = zeros("bias", (self.layers, width))
        self.earlier = Tensor(np.tril(np.ones((self.layers, self.layers), np.float32), -1))
        self.products = ops.MatMul(transpose_b=True)
        self._fuse()

    def plain(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, computed with MindSpore's own operators."""
        products = self.product(self.products(self.factor(x), self.factor(self.weight)))
        of_input = ops.split(products, 1, 1)
        of_biases = (self.products(self.weight, self.bias) * self.earlier).sum(1)
        factor = 1 + of_input[0]
        for k in range(1, self.layers):
            factor = factor + factor * of_input[k] + of_biases[k]
        return factor * x + self.bias.sum(0)

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        return self.weight, self.bias

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layers to a `Program`, and return the output of the last layer."""
        weight, bias = program.parameter(), program.parameter()
        return program.cross_vectors(x, self.layers, weight, bias, output)


class CrossNetV2(CrossLayers):
    r"""Cross network of DCN-V2: each layer multiplies `x_0` elementwise by a linear map of `x_l`.

    .. math::
        x_{l+1} = x_0 \odot (W_l x_l + b_l) + x_l, \quad l = 0, \dots, L - 1

    Each layer has one square matrix :math:`W_l`; the output is :math:`x_L`. Weights start with the
    normal initialization of Glorot & Bengio (2010), biases with 0. `mindspore.set_seed` seeds the
    initialization.

    On the CPU, one operator computes all layers, forward and backward, with matrix products by
    oneDNN.

    Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
    Learning to Rank Systems", WWW 2021, https://doi.org/10.1145/3442381.3450078.

    Args:
        in_features: width of the input, 1 to 2**20; or the widths of several inputs, which are
            joined without an extra copy.
        layers: number of cross layers L, 1 to 64. Default: 2.
        compute_dtype: type to which the factors of products are rounded; see `MLP`.
            Default: 'float32'.

    Inputs:
        x: float32 Tensor `[B, in_features]`, or, for several widths, one Tensor `[B, ...]` per
            width w, with w floats per row. A bfloat16 Tensor is also accepted, for example from a
            lookup with `output_dtype=bfloat16`.

    Outputs:
        float32 Tensor `[B, out_features]`.

    Attributes:
        out_features: width of the output, which is the total width of all inputs.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError, ValueError, RuntimeError: the number or the widths of the inputs are wrong.

    Example:
        >>> from mindspore_rec.nn import CrossNetV2
        >>> cross = CrossNetV2(6, layers=3)
        >>> cross(Tensor(np.ones((5, 6), np.float32))).shape
        (5, 6)
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        layers: int = 2,
        *,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(in_features, layers, compute_dtype)
        width = self.out_features
        weight = Normal(math.sqrt(1 / width))
        self.maps = nn.CellList(
            [
                nn.Dense(width, width, weight_init=weight, bias_init="zeros")
                for _ in range(self.layers)
            ]
        )
        self._fuse()

    def plain(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, computed with MindSpore's own operators."""
        crossed = x
        for linear in self.maps:
            crossed = x * self.through(linear, crossed) + crossed
        return crossed

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        parameters: Any = ()
        for linear in self.maps:
            parameters = (*parameters, linear.weight, linear.bias)
        return parameters

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layers to a `Program`, and return the output of the last layer."""
        crossed = x
        for k in range(len(self.maps)):
            mapped = program.linear(crossed, x.width, program.parameter(), program.parameter())
            last = output if k + 1 == len(self.maps) else None
            crossed = program.cross_combine(x, mapped, crossed, last)
        return crossed
