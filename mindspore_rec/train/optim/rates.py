# SPDX-License-Identifier: Apache-2.0
"""Check that lists of learning rates are long enough for a training."""

from __future__ import annotations

from typing import Any

from mindspore import nn
from mindspore.nn.optim.optimizer import _IteratorLearningRate

__all__ = ["check_rates"]


def check_rates(optimizer: nn.Optimizer, steps: int | None, epochs: int = 1) -> int | None:
    """Return the number of steps for which an optimizer still has learning rates.

    Args:
        optimizer: the optimizer.
        steps: number of steps of the training; None if unknown. `steps` is not checked if the
            optimizer has already made steps, because a resumed training may skip some steps.
        epochs: number of epochs of the training. Default: 1.

    Returns:
        Number of remaining steps; None if the optimizer has no list of rates.

    Raises:
        ValueError: a list of learning rates is shorter than `steps`.

    Example:
        >>> from mindspore_rec.optim import SGD
        >>> optimizer = SGD(nn.Dense(2, 1).trainable_params(), learning_rate=[0.2, 0.1])
        >>> check_rates(optimizer, None)
        2
        >>> check_rates(optimizer, 10, epochs=2)
        Traceback (most recent call last):
        ...
        ValueError: learning_rate must have a rate for each of 10 steps, got 2 rates: \
numpy.repeat(learning_rate, 5) has one rate in each epoch
    """
    lists = _lists_of_rates(optimizer)
    if not lists:
        return None
    count = min(lists)
    made = int(optimizer.global_step.asnumpy().reshape(-1)[0])
    if steps is not None and made == 0 and count < steps:
        raise ValueError(
            f"learning_rate must have a rate for each of {steps} steps, got {count} "
            f"rate{'s' * (count != 1)}: {_remedy(count, steps, epochs)}"
        )
    return max(0, count - made)


def _remedy(count: int, steps: int, epochs: int) -> str:
    if count == epochs > 1:
        return f"numpy.repeat(learning_rate, {-(-steps // epochs)}) has one rate in each epoch"
    return "give as many, or a LearningRateSchedule, or fewer epochs"


def _lists_of_rates(optimizer: nn.Optimizer) -> list[int]:
    """Return the length of each list of learning rates in an optimizer and its parameter groups."""
    rates: Any = getattr(optimizer, "learning_rate", None)
    if not isinstance(rates, nn.Cell):
        return []
    cells = [cell for _, cell in rates.cells_and_names()]
    return [len(c.learning_rate) for c in cells if isinstance(c, _IteratorLearningRate)]
