# SPDX-License-Identifier: Apache-2.0
"""Base class of layers that compute a vector from each number in a row."""

from __future__ import annotations

from mindspore import Tensor

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.inputs import check_inputs, widened
from mindspore_rec.train.nn.fused.layer import FusedLayer

__all__ = ["NumberVectors"]


class NumberVectors(FusedLayer):
    """Base class of layers that compute a vector from each number in a row.

    Args:
        numbers: the number N of input values per row, 1 to 65536.
        embedding_dim: width D of a vector, 1 to 8192.

    Inputs:
        x: float32 or bfloat16 Tensor `[B, numbers]`.

    Outputs:
        float32 Tensor `[B, numbers, embedding_dim]`.

    Attributes:
        out_features: floats per row of the output, numbers * embedding_dim.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or the input has
            the wrong shape.
    """

    rounds_products = False

    def __init__(self, numbers: int, embedding_dim: int) -> None:
        super().__init__("float32")
        self.numbers = check_int("numbers", numbers, 1, 1 << 16)
        self.dim = check_int("embedding_dim", embedding_dim, 1, 8192)
        self.in_features = (self.numbers,)
        self.out_features = self.numbers * self.dim

    def construct(self, x: Tensor) -> Tensor:
        """Return a vector for each number in `x`."""
        check_inputs((x,), self.in_features)
        if x.shape[1:] != (self.numbers,):
            raise ValueError(f"x must be [B, {self.numbers}], got {x.shape}")
        if self.is_fused:
            vectors = self._run_fused((x, *self.learned()))
            return vectors.reshape((-1, self.numbers, self.dim))
        return self.vectors_of(widened(x))

    def vectors_of(self, x: Tensor) -> Tensor:
        """Return the vectors of `x` (float32 `[B, numbers]`), computed by MindSpore's operators."""
        raise NotImplementedError
