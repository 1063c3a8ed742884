# SPDX-License-Identifier: Apache-2.0
"""RMSProp, plain and centered."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from mindspore_rec.train.optim.base import SparseOptimizer
from mindspore_rec.train.optim.checks import check_flag, check_hyperparameter

__all__ = ["RMSProp"]


class RMSProp(SparseOptimizer):
    r"""RMSProp: gradients divided by a running root mean square, with momentum.

    .. math::
        s &= \rho s + (1 - \rho) g^2 \\
        b &= \beta b + lr \frac{g}{\sqrt{s + \epsilon}} \\
        w &= w - b

    With `centered`, the update divides by the root of :math:`s - \bar g^2 + \epsilon` with
    :math:`\bar g = \rho \bar g + (1 - \rho) g`. If rounding makes :math:`s - \bar g^2` negative,
    the update uses 0 instead. As in `mindspore.nn.RMSProp`, which has the same formulas, :math:`s`
    starts at 1. In a table, rows outside the batch keep their value and state. Sources: Tieleman &
    Hinton, "Lecture 6.5 - rmsprop", Coursera 2012; for the centered form: Graves, "Generating
    Sequences With Recurrent Neural Networks", 2013.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 0.1.
        decay: :math:`\rho`, in [0, 1). Default: 0.9.
        momentum: :math:`\beta`, in [0, 1). Default: 0.0.
        epsilon: > 0. Default: 1e-10.
        centered: whether to subtract the squared mean gradient. Default: False.
        loss_scale: factor > 0 by which the loss was multiplied. Default: 1.0.
        weight_decay: number >= 0, or a Cell that maps the step to a number. ``weight_decay * w`` is
            added to the gradient. Default: 0.0.
        clip_global_norm: upper limit > 0 of the norm of all gradients together; None for no
            clipping. Default: None.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is out of its range.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> optimizer = optim.RMSProp(nn.Dense(3, 1).trainable_params(), 0.01, centered=True)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        *,
        centered: bool = False,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
        clip_global_norm: float | None = None,
    ) -> None:
        decay = check_hyperparameter("decay", decay, low=0, high=1, high_open=True)
        momentum = check_hyperparameter("momentum", momentum, low=0, high=1, high_open=True)
        epsilon = check_hyperparameter("epsilon", epsilon, low=0, low_open=True)
        centered = check_flag("centered", centered)
        state = {"mean_square": 1.0, "moment": 0.0}
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule="rmsprop",
            constants={
                "initial_accumulator": 1.0,
                "decay": decay,
                "momentum": momentum,
                "epsilon": epsilon,
                "centered": centered,
            },
            state={**state, "mean_grad": 0.0} if centered else state,
        )
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered
        self._opt = ops.ApplyRMSProp()
        # The operators are instances rather than functions, so that `target` can set their device.
        self._add, self._sub, self._mul, self._div = ops.Add(), ops.Sub(), ops.Mul(), ops.RealDiv()
        self._sqrt, self._assign, self._relu = ops.Sqrt(), ops.Assign(), ops.ReLU()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        if self._centered:
            return self._centered_step(j, w, g, lr)
        return self._opt(
            w,
            self.mean_square[j],
            self.moment[j],
            lr,
            g,
            self._decay,
            self._momentum,
            self._epsilon,
        )

    def _centered_step(self, j: int, w: Any, g: Any, lr: Any) -> Any:
        # MindSpore's ApplyCenteredRMSProp can take the root of a negative number, because rounding
        # can make the mean square less than the squared mean.
        keep = 1.0 - self._decay
        s = self._blend(self.mean_square[j], self._mul(g, g), keep)
        mean = self._blend(self.mean_grad[j], g, keep)
        variance = self._relu(self._sub(s, self._mul(mean, mean)))
        rate = self._div(self._mul(lr, g), self._sqrt(self._add(variance, self._epsilon)))
        moved = self._add(self._mul(self.moment[j], self._momentum), rate)
        return (
            self._assign(self.mean_square[j], s),
            self._assign(self.mean_grad[j], mean),
            self._assign(self.moment[j], moved),
            self._assign(w, self._sub(w, moved)),
        )

    def _blend(self, old: Any, new: Any, keep: float) -> Any:
        return self._add(self._mul(old, self._decay), self._mul(new, keep))
