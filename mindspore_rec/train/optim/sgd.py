# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from mindspore_rec.train.optim.base import SparseOptimizer

__all__ = ["SGD"]


class SGD(SparseOptimizer):
    r"""Plain gradient descent, without any state: :math:`w = w - lr \, g`.

    For gradient descent with momentum, use `Momentum`.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 0.1.
        weight_decay: number >= 0, or a Cell that maps the step to a number. ``weight_decay * w`` is
            added to the gradient. Default: 0.0.
        loss_scale: factor > 0 by which the loss was multiplied. Default: 1.0.
        clip_global_norm: upper limit > 0 of the norm of all gradients together; None for no
            clipping. Default: None.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is out of its range.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> optimizer = optim.SGD(nn.Dense(3, 1).trainable_params(), learning_rate=0.05)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        *,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
        clip_global_norm: float | None = None,
    ) -> None:
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule="sgd",
            constants={},
            state={},
        )
        self._opt = ops.AssignSub()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        return self._opt(w, lr * g)
