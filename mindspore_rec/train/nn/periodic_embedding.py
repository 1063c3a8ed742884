# SPDX-License-Identifier: Apache-2.0
"""PeriodicEmbedding: embed each number in a row by sines and cosines of learned frequencies."""

from __future__ import annotations

import math
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Normal, initializer

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.train.nn.fused.program import Columns, Program
from mindspore_rec.train.nn.number_vectors import NumberVectors

__all__ = ["PeriodicEmbedding"]


class PeriodicEmbedding(NumberVectors):
    r"""Embed each number by sines and cosines, a linear layer that all numbers share, and ReLU.

    .. math::
        y_{b,n} = \text{relu}(W [\sin(2 \pi f_n x_{b,n}), \cos(2 \pi f_n x_{b,n})] + c)

    The frequencies :math:`f_n` of each number are learned; their initial values are drawn from a
    normal distribution.

    Source: Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning",
    NeurIPS 2022, https://arxiv.org/abs/2203.05556. Later work of the authors calls the form with a
    shared linear layer "PLR (lite)".

    Args:
        numbers: the number N of input values per row, 1 to 65536.
        embedding_dim: width D of a vector, 1 to 8192.
        frequencies: number of learned frequencies per input number, 1 to 4096. Default: 24.
        scale: standard deviation of the initial frequencies, > 0, in periods per unit of the
            number. `mindspore.set_seed` seeds the initialization. Default: 0.5.

    Inputs:
        x: float32 Tensor `[B, numbers]`.

    Outputs:
        float32 Tensor `[B, numbers, embedding_dim]`.

    Attributes:
        frequencies: the learned frequencies, a Parameter `[numbers, frequencies]`.
        linear: the linear layer.
        out_features: floats per row of the output, numbers * embedding_dim.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or the input has
            the wrong shape.

    Example:
        >>> from mindspore_rec.nn import PeriodicEmbedding
        >>> PeriodicEmbedding(2, 3)(Tensor([[0.5, -1.0]])).shape
        (1, 2, 3)
    """

    def __init__(
        self, numbers: int, embedding_dim: int, frequencies: int = 24, scale: float = 0.5
    ) -> None:
        super().__init__(numbers, embedding_dim)
        check_int("frequencies", frequencies, 1, 4096)
        check_number("scale", scale, low=0, low_open=True)
        first = initializer(Normal(scale), (self.numbers, frequencies))
        self.frequencies = Parameter(first, name="frequencies")
        self.linear = nn.Dense(
            2 * frequencies, self.dim, weight_init=HeUniform(math.sqrt(5)), bias_init="zeros"
        )
        self._fuse()

    def vectors_of(self, x: Tensor) -> Tensor:
        """Return relu(linear(waves)); the waves are sines and cosines of the numbers."""
        angles = ops.expand_dims(x, 2) * (self.frequencies * (2 * math.pi))
        waves = ops.concat((ops.sin(angles), ops.cos(angles)), 2)
        return ops.relu(self.linear(waves))

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        return self.frequencies, self.linear.weight, self.linear.bias

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layer to a program, and return the output's columns."""
        parameters = (program.parameter(), program.parameter(), program.parameter())
        count = self.frequencies.shape[1]
        return program.waves(x, parameters, count, self.out_features, output)
