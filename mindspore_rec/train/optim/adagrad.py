# SPDX-License-Identifier: Apache-2.0
"""Adagrad, and its form with one number of state a row."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from mindspore_rec.train.optim.base import SparseOptimizer
from mindspore_rec.train.optim.checks import check_hyperparameter

__all__ = ["Adagrad", "RowWiseAdagrad"]


class Adagrad(SparseOptimizer):
    r"""Adagrad: a learning rate for each weight that falls with the gradients it has seen.

    .. math::
        a &= a + g^2 \\
        w &= w - lr \frac{g}{\sqrt{a}}

    The formula is `mindspore.nn.Adagrad`'s. Rows that do not occur in a batch do not change in
    Adagrad proper either. Source: Duchi et al., "Adaptive Subgradient Methods for Online Learning
    and Stochastic Optimization", JMLR 2011.

    Args:
        params: parameters or groups (`net.trainable_params()`), tables among them.
        accum: first value of :math:`a`, > 0 (with 0, a gradient of 0 would be 0 / 0). Default: 0.1.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 0.001.
        loss_scale: > 0, what the loss was multiplied by. Default: 1.0.
        weight_decay: number >= 0 or a Cell of the step; added to the gradient as
            ``weight_decay * w``. Default: 0.0.
        clip_global_norm: > 0, the greatest norm of all gradients together, or None. Default: None.

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
    r"""Adagrad with one accumulator a row: 4 bytes of state a row, whatever its width.

    For a row of a table, with :math:`D` floats:

    .. math::
        a &= a + \frac{1}{D} \sum_{j=1}^{D} g_j^2 \\
        w &= w - lr \frac{g}{\sqrt{a} + epsilon}

    Dense parameters get ordinary Adagrad with an accumulator for each element:
    :math:`a = a + g^2`, :math:`w = w - lr \, g / (\sqrt{a} + epsilon)`. Source: FBGEMM's
    ``EXACT_ROWWISE_ADAGRAD``, and Mudigere et al., "Software-Hardware Co-design for Fast and
    Scalable Training of Deep Learning Recommendation Models", ISCA 2022.

    Args:
        params: parameters or groups (`net.trainable_params()`), tables among them.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 0.01.
        epsilon: > 0, added to the root. Default: 1e-8.
        accum: first value of :math:`a`, >= 0. Default: 0.0.
        loss_scale: > 0, what the loss was multiplied by. Default: 1.0.
        weight_decay: number >= 0 or a Cell of the step; added to the gradient as
            ``weight_decay * w``. Default: 0.0.
        clip_global_norm: > 0, the greatest norm of all gradients together, or None. Default: None.

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
        # Instances rather than functions, so that `target` can place them.
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
