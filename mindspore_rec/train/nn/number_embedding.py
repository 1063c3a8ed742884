# SPDX-License-Identifier: Apache-2.0
"""NumberEmbedding: embed each number in a row as a learned vector times the number."""

from __future__ import annotations

from typing import Any

from mindspore import Parameter, Tensor, ops
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.common.checks import check_number
from mindspore_rec.common.old_arguments import Renamed, takes_old
from mindspore_rec.train.nn.fused.program import Columns, Program
from mindspore_rec.train.nn.number_vectors import NumberVectors

__all__ = ["NumberEmbedding"]


class NumberEmbedding(NumberVectors):
    r"""Embed numbers as fields: multiply each number by a learned vector.

    .. math::
        y_{b,n} = x_{b,n} \, v_n

    Source: Rendle, "Factorization Machines", ICDM 2010, https://doi.org/10.1109/ICDM.2010.127. In
    Rendle's paper, a number is a feature like any other. FuxiCTR and BARS use this embedding as the
    first layer of networks.

    Args:
        numbers: the number N of input values per row, 1 to 65536.
        embedding_dim: width D of a vector, 1 to 8192.
        std: standard deviation of the normal distribution of the initial vectors, at least 0.
            `mindspore.set_seed` seeds the initialization. Default: 0.01.

    Inputs:
        x: float32 Tensor `[B, numbers]`.

    Outputs:
        float32 Tensor `[B, numbers, embedding_dim]`.

    Attributes:
        vectors: the learned vectors, a Parameter `[numbers, embedding_dim]`.
        out_features: floats per row of the output, numbers * embedding_dim.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or the input has
            the wrong shape.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import NumberEmbedding
        >>> embedding = NumberEmbedding(2, 3)
        >>> embedding.vectors.set_data(Tensor(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))
        Parameter (name=vectors, shape=(2, 3), dtype=Float32, requires_grad=True)
        >>> embedding(Tensor(np.array([[1, 10]], np.float32))).asnumpy().tolist()
        [[[1.0, 2.0, 3.0], [40.0, 50.0, 60.0]]]
    """

    @takes_old(Renamed("dim", "embedding_dim"))
    def __init__(self, numbers: int, embedding_dim: int, std: float = 0.01) -> None:
        super().__init__(numbers, embedding_dim)
        check_number("std", std, low=0)
        first = initializer(Normal(std), (self.numbers, self.dim))
        self.vectors = Parameter(first, name="vectors")
        self._fuse()

    def vectors_of(self, x: Tensor) -> Tensor:
        """Return the scaled vectors."""
        return ops.expand_dims(x, 2) * self.vectors

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        return (self.vectors,)

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layer to a program, and return the output's columns."""
        return program.scale_vectors(x, program.parameter(), self.out_features, output)
