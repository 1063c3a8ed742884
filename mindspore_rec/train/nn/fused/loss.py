# SPDX-License-Identifier: Apache-2.0
"""Binary cross-entropy of logits as one operator, and its gradient as another operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.train.nn.fused.cell import native_operator, refusal_of

__all__ = ["LogisticLoss"]


class LogisticLoss(nn.Cell):
    """Mean or sum of binary cross-entropies.

    Args:
        is_mean: True for the mean, False for the sum.

    Inputs:
        logits, labels: float32 Tensors of equal shape.

    Outputs:
        Tuple of the loss (float32 Tensor of shape `(1,)`) and values for the gradient.
    """

    def __init__(self, is_mean: bool) -> None:
        super().__init__(auto_prefix=False)
        self.is_mean = is_mean
        self.scale_of = Tensor(np.array([is_mean], np.int64))
        self.forward = native_operator("MsrLogisticLoss", 2)
        self.backward = native_operator("MsrLogisticLossGradient", 2, refusal_of(4))

    def __deepcopy__(self, memo: dict[int, Any]) -> LogisticLoss:
        """Return another cell that computes the same loss."""
        memo[id(self)] = copied = LogisticLoss(self.is_mean)
        return copied

    def construct(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the gradient of the logits."""
        return self.forward(self.scale_of, logits, labels)

    def bprop(self, logits: Tensor, labels: Tensor, out: Any, dout: Any) -> tuple[Tensor, Tensor]:
        """Return the gradients of logits and labels."""
        return self.backward(self.scale_of, logits, out[1], dout[0])
