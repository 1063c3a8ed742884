# SPDX-License-Identifier: Apache-2.0
"""Rounds float32 to bfloat16 values, for devices that cannot multiply bfloat16."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

__all__ = ["GradientRounding", "Rounding"]


class Rounding(nn.Cell):
    """Round to the nearest bfloat16, ties to even; the gradient passes unchanged.

    Inputs:
        x: float32 Tensor.

    Outputs:
        float32 Tensor of the same shape.

    Example:
        >>> Rounding()(Tensor([1.001, 1.007], ms.float32)).asnumpy().tolist()
        [1.0, 1.0078125]
    """

    def construct(self, x: Tensor) -> Tensor:
        """Return x rounded."""
        return ops.cast(ops.cast(x, ms.bfloat16), ms.float32)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        """Return the gradient of the output unchanged."""
        return (dout,)


class GradientRounding(nn.Cell):
    """Return x unchanged; round the gradient of x to bfloat16."""

    def construct(self, x: Tensor) -> Tensor:
        """Return x."""
        return x

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        """Return the output's gradient, rounded to bfloat16."""
        return (ops.cast(ops.cast(dout, ms.bfloat16), ms.float32),)
