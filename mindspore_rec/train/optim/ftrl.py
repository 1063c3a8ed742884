# SPDX-License-Identifier: Apache-2.0
"""FTRL-Proximal: sparse weights for the wide part of a model."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, ops

from mindspore_rec.train.optim.base import SparseOptimizer
from mindspore_rec.train.optim.checks import check_hyperparameter

__all__ = ["FTRL"]


class FTRL(SparseOptimizer):
    r"""FTRL-Proximal, with L1 regularization that sets weights to exactly zero.

    .. math::
        n' &= n + g^2 \\
        z &= z + g - \frac{n'^{-p} - n^{-p}}{lr} w \\
        w &= \begin{cases} 0 & |z| \le l_1 \\
             \dfrac{sign(z) l_1 - z}{n'^{-p} / lr + 2 l_2} & \text{else} \end{cases}

    Here :math:`p` is `lr_power`. TensorFlow and the deprecated `mindspore.nn.FTRL` have the same
    formula. Source: McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013.

    A change of the learning rate would rescale the weights, because :math:`z` sums terms that are
    divided by the rate. For a learning rate schedule, the optimizer raises an error, as
    `mindspore.nn.FTRL` does. Parameter groups may have different rates.

    If a gradient is NaN, :math:`z` becomes NaN, and the weight becomes 0 and stays 0, as in
    `mindspore.nn.FTRL`. `RecModel` stops if the loss is NaN.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        initial_accum: initial value of :math:`n`, >= 0. Default: 0.1.
        learning_rate: constant, > 0. Default: 0.001.
        lr_power: <= 0. Default: -0.5.
        l1: >= 0. Default: 0.0.
        l2: >= 0. Default: 0.0.
        loss_scale: factor > 0 by which the loss was multiplied. Default: 1.0.
        weight_decay: number >= 0, or a Cell that maps the step to a number. ``weight_decay * w`` is
            added to the gradient. Without parameter groups, all parameters decay, whatever their
            names. Default: 0.0.
        clip_global_norm: upper limit > 0 of the norm of all gradients together; None for no
            clipping. Default: None.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is out of its range, or the learning rate is not constant.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> optimizer = optim.FTRL(nn.Dense(3, 1).trainable_params(), learning_rate=0.05, l1=1e-4)
    """

    native_dense = True

    def __init__(
        self,
        params: Any,
        initial_accum: float = 0.1,
        learning_rate: Any = 0.001,
        lr_power: float = -0.5,
        l1: float = 0.0,
        l2: float = 0.0,
        loss_scale: float = 1.0,
        weight_decay: Any = 0.0,
        clip_global_norm: float | None = None,
    ) -> None:
        initial_accum = check_hyperparameter("initial_accum", initial_accum, low=0)
        lr_power = check_hyperparameter("lr_power", lr_power, high=0)
        l1 = check_hyperparameter("l1", l1, low=0)
        l2 = check_hyperparameter("l2", l2, low=0)
        super().__init__(
            params,
            learning_rate,
            weight_decay,
            loss_scale,
            clip_global_norm,
            rule="ftrl",
            constants={
                "initial_accumulator": initial_accum,
                "lr_power": lr_power,
                "l1": l1,
                "l2": l2,
            },
            state={"moments": initial_accum, "linear": 0.0},
        )
        self._lr_power = lr_power
        self._l1 = l1
        self._l2 = l2
        # The operators are instances rather than functions, so that `target` can set the operators'
        # device.
        self._add, self._sub, self._mul, self._div = ops.Add(), ops.Sub(), ops.Mul(), ops.RealDiv()
        self._sqrt, self._pow, self._abs, self._sign = ops.Sqrt(), ops.Pow(), ops.Abs(), ops.Sign()
        self._greater, self._select, self._zeros_like = ops.Greater(), ops.Select(), ops.ZerosLike()
        self._assign = ops.Assign()

    def _check_rates(self, learning_rate: Any) -> None:
        if self.dynamic_lr:
            raise ValueError(
                "learning_rate must be constant for FTRL, whose state is in units of 1 / rate: got "
                "a schedule, an iterable or a 1-d Tensor"
            )
        rates = self.learning_rate if self.is_group_lr else (self.learning_rate,)
        for rate in rates:
            if float(rate.asnumpy()) <= 0:
                raise ValueError("learning_rate must be > 0 for FTRL, which divides by it, got 0")

    def _decay_all_tables(self, owners: list[Any]) -> None:
        super()._decay_all_tables(owners)
        if not self.is_group:
            self._decays = (self.exec_weight_decay,) * len(owners)

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        n, z = self.moments[j], self.linear[j]
        n1 = self._add(n, self._mul(g, g))
        root = self._root(n1)
        sigma = self._div(self._sub(root, self._root(n)), lr)
        z1 = self._sub(self._add(z, g), self._mul(sigma, w))
        toward = self._sub(self._mul(self._sign(z1), self._l1), z1)
        w1 = self._div(toward, self._add(self._div(root, lr), 2 * self._l2))
        w1 = self._select(self._greater(self._abs(z1), self._l1), w1, self._zeros_like(w1))
        return self._assign(n, n1), self._assign(z, z1), self._assign(w, w1)

    def _root(self, n: Tensor) -> Tensor:
        if self._lr_power == -0.5:
            return self._sqrt(n)
        return self._pow(n, ops.cast(-self._lr_power, ms.float32))
