# SPDX-License-Identifier: Apache-2.0
"""Constant learning rates of optimizers, and RateSchedule, a callback that changes the rates."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import RunContext

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.train.callbacks.resumed import ResumedCallback, steps_before
from mindspore_rec.train.optim.asked_rates import is_changed
from mindspore_rec.train.optim.combined import CombinedOptimizer
from mindspore_rec.train.optim.ftrl import FTRL

__all__ = ["RateSchedule", "constant_rates", "set_rate"]

_NO_LIMIT = sys.maxsize


class RateSchedule(ResumedCallback):
    r"""Callback that multiplies the optimizers' learning rates by a step-dependent factor.

    The factor of step :math:`t`, counted from 1 and over restarts, is the product of

    * the warm-up, :math:`\min(1, t / warm\_up)`;
    * the cosine decay after the warm-up,
      :math:`\frac{1}{2}(1 + \cos(\pi \frac{t - 1 - warm\_up}{total - warm\_up}))`, which is 0 after
      `total` steps;
    * the factors of all cuts whose step is before :math:`t`.

    The callback multiplies the constant rates of dense parameters, of tables and of all parameter
    groups. The rates of `FTRL` are not multiplied, because the state of `FTRL` is in units of 1 /
    rate. Unlike a schedule inside the optimizer, such as `mindspore.nn.CosineDecayLR`, the callback
    does not change the ratios between the rates of parameter groups. While the factor changes from
    step to step, the callback overwrites rates that another callback has set. If a
    `ReduceLROnPlateau`, or an `EarlyStopping` with `cuts`, is among the callbacks, use a warm-up
    that ends before the second evaluation, and leave `total` unset. If a `RecCheckpoint` is among
    the callbacks, a restarted training uses the same factors as an uninterrupted training. When the
    training ends, the callback restores the original rates. After Ctrl-C, the current rates are
    kept.

    Args:
        warm_up: number of steps, at least 0, in which the rates rise from almost 0 to their full
            values. Default: 0.
        total: number of steps after which the rates are 0; must be above `warm_up`. Default: None,
            which means no decay.
        cuts: pairs (step, factor); the rates are multiplied by the factor after the step. Default:
            none.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        ValueError: no optimizer of the training has a constant rate, or an optimizer has a
            schedule (raised when training begins).

    Example:
        >>> schedule = RateSchedule(warm_up=2, total=4, cuts=[(3, 0.1)])
        >>> [round(schedule.factor(step), 3) for step in (1, 2, 3, 4, 5)]
        [0.5, 1.0, 1.0, 0.05, 0.0]
    """

    def __init__(
        self,
        warm_up: int = 0,
        total: int | None = None,
        cuts: Sequence[tuple[int, float]] = (),
    ) -> None:
        super().__init__()
        self.warm_up = check_int("warm_up", warm_up, 0, _NO_LIMIT)
        if total is not None:
            total = check_int("total", total, self.warm_up + 1, _NO_LIMIT)
        self.total = total
        self.cuts = tuple(
            (check_int("cuts", step, 0, _NO_LIMIT), check_number("cuts", factor, low=0))
            for step, factor in cuts
        )
        self._reset()

    def _reset(self) -> None:
        self._base: list[float] = []  # the rates before multiplication
        self._last = 1.0  # factor of the last step
        self._resumed = False  # until the first step after a saved state was restored

    def factor(self, step: int) -> float:
        """Return the factor that multiplies the rates in step `step`; the first step is 1."""
        made = min(1.0, step / self.warm_up) if self.warm_up else 1.0
        if self.total is not None and step > self.warm_up:
            share = min(1.0, (step - 1 - self.warm_up) / (self.total - self.warm_up))
            made *= 0.5 * (1 + math.cos(math.pi * share))
        for after, factor in self.cuts:
            if step > after:
                made *= factor
        return made

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"base": list(self._base), "last": self._last}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        base, last = [float(each) for each in state["base"]], float(state["last"])
        self._base, self._last = base, last
        self._resumed = True

    runs_last = 3  # after an EarlyStopping, which restores the rates of its best step

    def on_train_begin(self, run_context: RunContext) -> None:
        """Check that the optimizers have constant rates."""
        constant_rates(run_context.original_args().train_network, type(self).__name__)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Set the learning rates of the step."""
        run = run_context.original_args()
        factor = self.factor(steps_before(run) + run.cur_step_num)
        if factor == self._last and not self._resumed:
            return
        rates = constant_rates(run.train_network, type(self).__name__)
        if self._resumed and not self._begin_again(rates) and factor == self._last:
            return
        if not self._base:
            self._base = [float(rate.asnumpy()) for rate in rates]
        for rate, base in zip(rates, self._base, strict=True):
            set_rate(rate, base * factor)
        self._last = factor

    def _begin_again(self, rates: Sequence[ms.Parameter]) -> bool:
        """Use the new rates of a restarted program; return whether there are new rates."""
        self._resumed = False
        if self._base:
            self._base = [
                float(rate.asnumpy()) if is_changed(rate) else base
                for rate, base in zip(rates, self._base, strict=True)
            ]
        return any(is_changed(rate) for rate in rates)

    def on_train_end(self, run_context: RunContext) -> None:
        """Restore the original rates, unless the training was interrupted."""
        run = run_context.original_args()
        if self._base and not run.interrupted:
            rates = constant_rates(run.train_network, type(self).__name__)
            for rate, base in zip(rates, self._base, strict=True):
                set_rate(rate, base)


def set_rate(rate: ms.Parameter, value: float) -> None:
    """Set a constant rate."""
    rate.set_data(ms.Tensor(value, rate.dtype))


def constant_rates(cell: nn.Cell, callback: str) -> list[ms.Parameter]:
    """Return the constant rates of a training cell's optimizers, except FTRL's rates.

    Args:
        cell: the training cell.
        callback: name of the callback that changes the rates, for messages.

    Raises:
        ValueError: no optimizer has a constant rate other than FTRL's rate, or an optimizer has a
            schedule.
    """
    optimizers = [each for _, each in cell.cells_and_names() if isinstance(each, nn.Optimizer)]
    rates = [rate for each in optimizers for rate in _own_rates(each, callback)]
    if not rates:
        raise ValueError(
            f"{callback} needs an optimizer with a constant learning_rate, other than FTRL"
        )
    return list({id(rate): rate for rate in rates}.values())


def _own_rates(optimizer: nn.Optimizer, callback: str) -> Iterator[ms.Parameter]:
    if isinstance(optimizer, (CombinedOptimizer, FTRL)):  # the list also contains the parts
        return
    if optimizer.dynamic_lr:
        raise ValueError(
            f"{callback} needs a constant learning_rate, and the learning_rate of the "
            f"{type(optimizer).__name__} is a schedule, which says itself when it falls: use one "
            "of the two"
        )
    yield from optimizer.learning_rate if optimizer.is_group_lr else (optimizer.learning_rate,)
