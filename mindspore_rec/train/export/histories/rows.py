# SPDX-License-Identifier: Apache-2.0
"""Cells that consist of MindSpore's operators, and replace native operators over rows during an
ONNX export.
"""

from __future__ import annotations

from mindspore import Tensor, nn, ops

__all__ = ["DiceRows", "NormalRows", "PReluRows"]


class NormalRows(nn.Cell):
    """Normalizes each row by its mean and variance.

    Args:
        epsilon: number that is added to variances.

    Inputs:
        - **x** (Tensor): float32 `[N, width]`.
        - **scale**, **shift** (Tensor): float32 `[width]`.

    Outputs:
        float32 Tensor `[N, width]`.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__(auto_prefix=False)
        self.epsilon = epsilon

    def construct(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Return the normalized rows."""
        x = x - x.mean(1, keep_dims=True)
        variance = (x * x).mean(1, keep_dims=True)
        return x / ops.sqrt(variance + self.epsilon) * scale + shift


class DiceRows(nn.Cell):
    """Dice in evaluation.

    Args:
        epsilon: number that is added to variances.

    Inputs:
        - **x** (Tensor): float32 `[N, width]`.
        - **alpha**, **mean**, **variance** (Tensor): float32 `[width]`.

    Outputs:
        Tuple of one float32 Tensor `[N, width]`.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__(auto_prefix=False)
        self.epsilon = epsilon

    def construct(self, x: Tensor, alpha: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor]:
        """Return the activations."""
        share = ops.sigmoid((x - mean) / ops.sqrt(variance + self.epsilon))
        return (x * (share + (1.0 - share) * alpha),)


class PReluRows(nn.Cell):
    """PReLU.

    Inputs:
        - **x** (Tensor): float32 `[N, width]`.
        - **alpha** (Tensor): float32 `[width]`.

    Outputs:
        float32 Tensor `[N, width]`.
    """

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)

    def construct(self, x: Tensor, alpha: Tensor) -> Tensor:
        """Return the activations."""
        return ops.maximum(x, 0.0) + alpha * ops.minimum(x, 0.0)
