# SPDX-License-Identifier: Apache-2.0
"""Adam for dense parameters and, in its lazy form, for tables."""

from __future__ import annotations

import math
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from mindspore_rec.train.optim.base import SparseOptimizer
from mindspore_rec.train.optim.checks import check_flag, check_hyperparameter

__all__ = ["Adam", "AdamBase", "LazyAdam", "log_of"]


def log_of(beta: float) -> float:
    """Return log(beta) for beta > 0; beta is first rounded to float32, as in the update."""
    return math.log(float(np.float32(beta)))


class AdamBase(SparseOptimizer):
    """Base class of Adam and AdamW, with the moments and the bias corrections."""

    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any,
        beta1: Any,
        beta2: Any,
        eps: Any,
        use_nesterov: Any,
        weight_decay: Any,
        loss_scale: Any,
        clip_global_norm: Any,
        rule: str,
    ) -> None:
        beta1 = check_hyperparameter("beta1", beta1, low=0, high=1, high_open=True)
        beta2 = check_hyperparameter("beta2", beta2, low=0, high=1, high_open=True)
        eps = check_hyperparameter("eps", eps, low=0, low_open=True)
        use_nesterov = check_flag("use_nesterov", use_nesterov)
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule=rule,
            constants={"beta1": beta1, "beta2": beta2, "epsilon": eps, "nesterov": use_nesterov},
            state={"moment1": 0.0, "moment2": 0.0},
        )
        self._beta1 = beta1
        self._beta2 = beta2
        self._eps = eps
        self._log_beta1 = log_of(beta1) if beta1 > 0 else 0.0
        self._log_beta2 = log_of(beta2) if beta2 > 0 else 0.0
        self._zero = Tensor(0.0, ms.float32)
        self._opt = ops.Adam(use_nesterov=use_nesterov)

    def prepare(self, step: Tensor) -> Any:
        """Return the bias corrections of the learning rate and, for AdamW, of epsilon."""
        # expm1 computes 1 - beta ** t, because 1 - 0.999 ** t has few exact digits in float32.
        first = self._one if self._beta1 == 0 else -ops.expm1(step * self._log_beta1)
        second = self._one if self._beta2 == 0 else ops.sqrt(-ops.expm1(step * self._log_beta2))
        return second / first, second

    def adam(self, j: int, w: Any, g: Any, lr: Any, eps: Any) -> Any:
        """Run MindSpore's fused update; `lr` and `eps` already contain the bias correction."""
        return self._opt(
            w,
            self.moment1[j],
            self.moment2[j],
            self._zero,
            self._zero,
            lr,
            self._beta1,
            self._beta2,
            eps,
            g,
        )


class LazyAdam(AdamBase):
    r"""Adam that updates only the rows of the batch.

    .. math::
        m &= \beta_1 m + (1 - \beta_1) g \\
        v &= \beta_2 v + (1 - \beta_2) g^2 \\
        w &= w - lr \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t} \frac{m}{\sqrt{v} + eps}

    With Nesterov's momentum, the numerator of the update is :math:`\beta_1 m + (1 - \beta_1) g`. In
    a table, rows outside the batch keep their value and moments. As in the deprecated
    `mindspore.nn.LazyAdam`, which has the same formula, :math:`t` is the optimizer's step number.
    Dense parameters use ordinary Adam. Source: Kingma & Ba, "Adam: A Method for Stochastic
    Optimization", ICLR 2015; the lazy form is TensorFlow's LazyAdamOptimizer.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 1e-3.
        beta1: decay of the first moment, in [0, 1). Default: 0.9.
        beta2: decay of the second moment, in [0, 1). Default: 0.999.
        eps: number > 0 that is added to the square root. Default: 1e-8.
        use_nesterov: Nesterov's momentum. Default: False.
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
        >>> net = nn.Dense(3, 1)
        >>> optimizer = optim.LazyAdam(net.trainable_params(), learning_rate=1e-3)
        >>> train = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        use_nesterov: bool = False,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
        clip_global_norm: float | None = None,
    ) -> None:
        super().__init__(
            params,
            learning_rate,
            beta1,
            beta2,
            eps,
            use_nesterov,
            weight_decay,
            loss_scale,
            clip_global_norm,
            "adam",
        )

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        return self.adam(j, w, g, lr * prepared[0], self._eps)


class Adam(LazyAdam):
    """Adam: `mindspore.nn.Adam` for dense parameters, and `LazyAdam` for tables.

    `mindspore.nn.Adam` and `LazyAdam` treat table rows outside the batch differently.
    `mindspore.nn.Adam` would decay the moments of rows outside the batch and update these rows. An
    update of rows outside the batch would need a pass over the whole table in each step. `LazyAdam`
    leaves rows outside the batch unchanged. Arguments, formula and errors are the same as for
    `LazyAdam`.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> optimizer = optim.Adam(nn.Dense(3, 1).trainable_params(), learning_rate=1e-3)
    """
