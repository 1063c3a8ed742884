# SPDX-License-Identifier: Apache-2.0
"""Adagrad, and row-wise Adagrad, whose state is one number per row."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from mindspore_rec.train.optim.base import SparseOptimizer
from mindspore_rec.train.optim.checks import check_hyperparameter

__all__ = ["Adagrad", "RowWiseAdagrad"]


class Adagrad(SparseOptimizer):
    r"""Adagrad: each weight has its own learning rate, which falls as gradients accumulate.

    .. math::
        a &= a + g^2 \\
        w &= w - lr \frac{g}{\sqrt{a}}

    The formula is `mindspore.nn.Adagrad`'s. Rows outside the batch do not change, exactly as in
    ordinary Adagrad, in which a gradient of 0 changes nothing. Source: Duchi et al., "Adaptive
    Subgradient Methods for Online Learning and Stochastic Optimization", JMLR 2011.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        accum: initial value of :math:`a`, > 0. With `accum` 0, a gradient of 0 would give 0 / 0.
            Default: 0.1.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 0.001.
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
        >>> optimizer = optim.Adagrad(nn.Dense(3, 1).trainable_params(), learning_rate=0.05)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        accum: float = 0.1,
        learning_rate: Any = 0.001,
        *,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
        clip_global_norm: float | None = None,
    ) -> None:
        accum = check_hyperparameter("accum", accum, low=0, low_open=True)
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule="adagrad",
            constants={"initial_accumulator": accum, "epsilon": 0.0},
            state={"accum": accum},
        )
        self._opt = ops.ApplyAdagrad()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        return self._opt(w, self.accum[j], lr, g)


class RowWiseAdagrad(SparseOptimizer):
    r"""Adagrad with one accumulator per row, so a row of any width has 4 bytes of state.

    For a row of a table, with :math:`D` floats:

    .. math::
        a &= a + \frac{1}{D} \sum_{j=1}^{D} g_j^2 \\
        w &= w - lr \frac{g}{\sqrt{a} + epsilon}

    Dense parameters use ordinary Adagrad with an accumulator for each element: :math:`a = a + g^2`,
    :math:`w = w - lr \, g / (\sqrt{a} + epsilon)`. Source: FBGEMM's ``EXACT_ROWWISE_ADAGRAD``, and
    Mudigere et al., "Software-Hardware Co-design for Fast and Scalable Training of Deep Learning
    Recommendation Models", ISCA 2022.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 0.01.
        epsilon: number > 0 that is added to the square root. Default: 1e-8.
        accum: initial value of :math:`a`, >= 0. Default: 0.0.
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
        >>> optimizer = optim.RowWiseAdagrad(nn.Dense(3, 1).trainable_params(), learning_rate=0.05)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.01,
        epsilon: float = 1e-8,
        accum: float = 0.0,
        *,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
        clip_global_norm: float | None = None,
    ) -> None:
        epsilon = check_hyperparameter("epsilon", epsilon, low=0, low_open=True)
        accum = check_hyperparameter("accum", accum, low=0)
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule="row_wise_adagrad",
            constants={"initial_accumulator": accum, "epsilon": epsilon},
            state={"accum": accum},
        )
        self._epsilon = epsilon
        # The operators are instances rather than functions, so that `target` can set the operators'
        # device.
        self._add, self._mul, self._div, self._sqrt = (
            ops.Add(),
            ops.Mul(),
            ops.RealDiv(),
            ops.Sqrt(),
        )
        self._assign_add, self._assign_sub = ops.AssignAdd(), ops.AssignSub()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        a = self._assign_add(self.accum[j], self._mul(g, g))
        root = self._add(self._sqrt(a), self._epsilon)
        return self._assign_sub(w, self._div(self._mul(lr, g), root))
