# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with momentum."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from mindspore_rec.train.optim.base import SparseOptimizer
from mindspore_rec.train.optim.checks import check_flag, check_hyperparameter

__all__ = ["Momentum"]


class Momentum(SparseOptimizer):
    r"""Gradient descent with plain momentum or Nesterov's momentum.

    .. math::
        m &= \mu m + g \\
        w &= w - lr \, m \quad \text{or, with Nesterov's,} \quad w = w - lr (g + \mu m)

    In a table, rows outside the batch keep their value and momentum. The formula is the same as in
    `mindspore.nn.Momentum`. Source: Sutskever et al., "On the importance of initialization and
    momentum in deep learning", ICML 2013.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0.
        momentum: :math:`\mu`, in [0, 1).
        weight_decay: number >= 0, or a Cell that maps the step to a number. ``weight_decay * w`` is
            added to the gradient. Default: 0.0.
        loss_scale: factor > 0 by which the loss was multiplied. Default: 1.0.
        use_nesterov: Nesterov's momentum. Default: False.
        clip_global_norm: upper limit > 0 of the norm of all gradients together; None for no
            clipping. Default: None.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is out of its range.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> optimizer = optim.Momentum(nn.Dense(3, 1).trainable_params(), 0.05, momentum=0.9)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any,
        momentum: float,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
        use_nesterov: bool = False,
        clip_global_norm: float | None = None,
    ) -> None:
        momentum = check_hyperparameter("momentum", momentum, low=0, high=1, high_open=True)
        use_nesterov = check_flag("use_nesterov", use_nesterov)
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule="momentum",
            constants={"momentum": momentum, "nesterov": use_nesterov},
            state={"moments": 0.0},
        )
        self._momentum = momentum
        self._nesterov = use_nesterov
        self._opt = ops.ApplyMomentum()
        # The operators are instances rather than functions, so that `target` can set their device.
        self._add, self._mul = ops.Add(), ops.Mul()
        self._assign, self._assign_sub = ops.Assign(), ops.AssignSub()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        if not self._nesterov:
            return self._opt(w, self.moments[j], lr, g, self._momentum)
        # ApplyMomentum(use_nesterov=True) is not used, because ApplyMomentum ignores this flag on
        # the CPU.
        m = self._add(self._mul(self.moments[j], self._momentum), g)
        ahead = self._add(g, self._mul(m, self._momentum))
        return self._assign(self.moments[j], m), self._assign_sub(w, self._mul(lr, ahead))
