# SPDX-License-Identifier: Apache-2.0
"""PiecewiseLinear: embed each number in a row by a learned curve of straight pieces."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.train.nn.fused.program import Columns, Program
from mindspore_rec.train.nn.number_vectors import NumberVectors

__all__ = ["PiecewiseLinear"]


class PiecewiseLinear(NumberVectors):
    r"""Embed each number by a learned curve, which is linear between equally spaced knots.

    .. math::
        y_{b,n} = (1 - s) \, v_{n,j} + s \, v_{n,j+1}, \qquad j + s = (x_{b,n} + 1) T / 2

    T is the number of bins, and :math:`v_{n,0}, ..., v_{n,T}` are the learned vectors at the knots.
    The bins divide the range from -1 to 1, to which `QuantileScale` and `MixedScale` scale numbers.
    For numbers from a `QuantileScale`, the bins are quantile bins, as in the paper. Below -1, a
    curve continues its first piece; above 1, a curve continues its last piece. The initial curves
    are straight lines through 0, as in a `NumberEmbedding`.

    Source: Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning",
    NeurIPS 2022, https://arxiv.org/abs/2203.05556: the piecewise linear encoding followed by a
    linear layer. In this cell, the parameters are the outputs of the paper's linear layer at the
    knots.

    Args:
        numbers: the number N of input values per row, 1 to 65536.
        embedding_dim: width D of a vector, 1 to 8192.
        bins: the number T of bins, 1 to 4096. Default: 64.
        std: standard deviation of the normal distribution of the initial vectors, at least 0.
            `mindspore.set_seed` seeds the initialization. Default: 0.01.

    Inputs:
        x: float32 Tensor `[B, numbers]`.

    Outputs:
        float32 Tensor `[B, numbers, embedding_dim]`.

    Attributes:
        knots: the learned vectors at the knots, a Parameter `[numbers, bins + 1, embedding_dim]`.
        out_features: floats per row of the output, numbers * embedding_dim.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or the input has
            the wrong shape.

    Example:
        >>> from mindspore_rec.nn import PiecewiseLinear
        >>> curve = PiecewiseLinear(1, 1, bins=2)
        >>> curve.knots.set_data(Tensor(np.array([[[5], [6], [16]]], np.float32)))  # at -1, 0, 1
        Parameter (name=knots, shape=(1, 3, 1), dtype=Float32, requires_grad=True)
        >>> x = np.array([[-1], [0], [0.5], [1]], np.float32)
        >>> curve(Tensor(x)).asnumpy().ravel().tolist()
        [5.0, 6.0, 11.0, 16.0]
    """

    def __init__(self, numbers: int, embedding_dim: int, bins: int = 64, std: float = 0.01) -> None:
        super().__init__(numbers, embedding_dim)
        self.bins = check_int("bins", bins, 1, 4096)
        check_number("std", std, low=0)
        first = initializer(Normal(std), (self.numbers, 1, self.dim)).init_data().asnumpy()
        places = np.linspace(-1, 1, bins + 1, dtype=np.float32)
        self.knots = Parameter(Tensor(places[None, :, None] * first), name="knots")
        # row index of each number's first knot, if all knots are the rows of one matrix
        self.first_knots = Tensor(np.arange(numbers, dtype=np.int32) * (bins + 1))
        self._fuse()

    def vectors_of(self, x: Tensor) -> Tensor:
        """Return, for each number, the point on the number's curve."""
        place = (x + 1.0) * (self.bins / 2)
        knot = ops.minimum(ops.relu(ops.floor(place)), float(self.bins - 1))
        row = ops.cast(knot, ms.int32) + self.first_knots
        knots = ops.reshape(self.knots, (-1, self.dim))
        below, above = ops.gather(knots, row, 0), ops.gather(knots, row + 1, 0)
        return below + ops.expand_dims(place - knot, 2) * (above - below)

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        return (self.knots,)

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layer to a program, and return the output's columns."""
        knots = program.parameter()
        return program.curves(x, knots, self.bins, self.out_features, output)
