# SPDX-License-Identifier: Apache-2.0
"""Dice and PReLU: activations with a learned slope for each column."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, ops

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.train.nn.fused.cell import native_operator, refusal_of
from mindspore_rec.train.nn.fused.inputs import widened
from mindspore_rec.train.nn.history.operators import (
    FLOAT32_ONLY,
    HistoryLayer,
    HistoryOperator,
)

__all__ = ["Dice", "DiceOperator", "PReLU", "PReLUOperator"]


class DiceOperator(HistoryOperator):
    """Operator of `Dice`: normalizes by the batch's moments (`of_batch`) or by given moments."""

    def __init__(self, of_batch: bool, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.form = Tensor(np.array([of_batch], np.int64))
        kept = np.float32(momentum)
        self.numbers = Tensor(np.array([epsilon, kept, np.float32(1) - kept], np.float32))
        self.forward = native_operator("MsrDice", 5)
        self.backward = native_operator("MsrDiceGradient", 2, refusal_of(7))

    def construct(
        self, x: Tensor, alpha: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the activations, the moments that were applied, and the new moving moments."""
        return self.forward(self.form, self.numbers, x, alpha, mean, variance)

    def bprop(
        self, x: Tensor, alpha: Tensor, mean: Tensor, variance: Tensor, out: Any, dout: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of the inputs."""
        gradients = self.backward(self.form, self.numbers, x, alpha, out[1], out[2], dout[0])
        return gradients[0], gradients[1], ops.zeros_like(mean), ops.zeros_like(variance)


class Dice(HistoryLayer):
    r"""Dice: a PReLU whose kink moves with the distribution of the inputs.

    .. math::
        y = p\, x + (1 - p)\, \alpha x, \quad p = \sigma\left(\frac{x - E[x]}{\sqrt{Var[x] +
        \epsilon}}\right)

    In training, the mean and the variance of a column are computed from the batch. Gradients flow
    through the mean and the variance. A training step also updates the moving mean and the moving
    variance; in evaluation, the inputs are normalized by the moving moments. A batch without rows
    does not change the moving moments. On several workers, each worker normalizes by its own rows,
    and `RecModel` averages the moving moments.

    Results are identical bit for bit for any number of threads. The cell runs on the CPU.

    Source: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018,
    https://arxiv.org/abs/1706.06978, equation 3.

    Args:
        width: number of columns, 1 to 65536.
        epsilon: number greater than 0 that is added to variances. Default: 1e-8, as in the paper.
        momentum: weight of the old moving moments in the new moving moments, in [0, 1]. Default:
            0.9.

    Inputs:
        x: float32 Tensor `[N, width]`.

    Outputs:
        float32 Tensor `[N, width]`.

    Attributes:
        alpha: the learned slopes, a Parameter `[width]`, initially 0.
        moving_mean, moving_variance: Parameters `[width]` without a gradient.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError: `to_float` has changed the cell to float16 or bfloat16.
        RuntimeError: the input has the wrong shape.

    Supported platforms:
        ``CPU``

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import Dice
        >>> dice = Dice(1).set_train()
        >>> y = dice(Tensor(np.array([[-1], [1]], np.float32))).asnumpy()
        >>> [round(float(each), 4) for each in y.ravel()]
        [-0.2689, 0.7311]
    """

    def __init__(self, width: int, epsilon: float = 1e-8, momentum: float = 0.9) -> None:
        super().__init__()
        check_int("width", width, 1, 1 << 16)
        if not check_number("epsilon", epsilon) > 0:
            raise ValueError(f"epsilon must be greater than 0, got {epsilon}")
        if not 0 <= check_number("momentum", momentum) <= 1:
            raise ValueError(f"momentum must be in [0, 1], got {momentum}")
        self.epsilon, self.momentum = float(epsilon), float(momentum)
        zeros = np.zeros(width, np.float32)
        self.alpha = Parameter(Tensor(zeros), name="alpha")
        self.moving_mean = Parameter(Tensor(zeros), name="moving_mean", requires_grad=False)
        ones = np.ones(width, np.float32)
        self.moving_variance = Parameter(Tensor(ones), name="moving_variance", requires_grad=False)
        self.of_batch = DiceOperator(True, epsilon, momentum)
        self.of_moving = DiceOperator(False, epsilon, momentum)

    def construct(self, x: Tensor) -> Tensor:
        """Return the activations."""
        if self.is_half:
            raise TypeError(FLOAT32_ONLY)
        x = widened(x)
        if not self.training:
            return self.of_moving(x, self.alpha, self.moving_mean, self.moving_variance)[0]
        used = self.of_batch(x, self.alpha, self.moving_mean, self.moving_variance)
        ops.assign(self.moving_mean, ops.stop_gradient(used[3]))
        ops.assign(self.moving_variance, ops.stop_gradient(used[4]))
        return used[0]


class PReLUOperator(HistoryOperator):
    """The operator of `PReLU`."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = native_operator("MsrPRelu", 1)
        self.backward = native_operator("MsrPReluGradient", 2, refusal_of(3))

    def construct(self, x: Tensor, alpha: Tensor) -> Tensor:
        """Return the activations."""
        return self.forward(x, alpha)

    def bprop(self, x: Tensor, alpha: Tensor, out: Any, dout: Any) -> tuple[Tensor, Tensor]:
        """Return the gradients of the inputs."""
        gradients = self.backward(x, alpha, dout)
        return gradients[0], gradients[1]


class PReLU(HistoryLayer):
    r"""PReLU: a rectifier that multiplies values below 0 by a learned slope per column.

    .. math::
        y = \max(x, 0) + \alpha \min(x, 0)

    Results are identical bit for bit for any number of threads. The cell runs on the CPU.

    Source: He et al., "Delving Deep into Rectifiers", ICCV 2015, https://arxiv.org/abs/1502.01852.

    Args:
        width: number of columns, 1 to 65536.
        slope: initial slope. Default: 0.25, as in the paper.

    Inputs:
        x: float32 Tensor `[N, width]`.

    Outputs:
        float32 Tensor `[N, width]`.

    Attributes:
        alpha: the learned slopes, a Parameter `[width]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError: `to_float` has changed the cell to float16 or bfloat16.
        RuntimeError: the input has the wrong shape.

    Supported platforms:
        ``CPU``

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import PReLU
        >>> PReLU(2)(Tensor(np.array([[-4, 2]], np.float32))).asnumpy().tolist()
        [[-1.0, 2.0]]
    """

    def __init__(self, width: int, slope: float = 0.25) -> None:
        super().__init__()
        check_int("width", width, 1, 1 << 16)
        first = np.full(width, check_number("slope", slope), np.float32)
        self.alpha = Parameter(Tensor(first, ms.float32), name="alpha")
        self.activate = PReLUOperator()

    def construct(self, x: Tensor) -> Tensor:
        """Return the activations."""
        if self.is_half:
            raise TypeError(FLOAT32_ONLY)
        x = widened(x)
        return self.activate(x, self.alpha)
