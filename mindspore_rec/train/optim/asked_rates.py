# SPDX-License-Identifier: Apache-2.0
"""Learning rates for which a program has asked, beside the rates that its training has reached.

A checkpoint of a run contains both. If a restarted program asks for the same rates as before, the
training continues with the rates that it had reached, for example after `ReduceLROnPlateau`. If the
program asks for another rate, the training continues with this rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from mindspore import Parameter, nn

from mindspore_rec import _native
from mindspore_rec.train.optim.in_cell import optimizers_in

__all__ = ["asked_rates", "is_changed", "newly_asked", "note_rates", "set_changed"]

_ASKED = "mindspore_rec_asked_rate"
_CHANGED = "mindspore_rec_changed_rate"


def note_rates(cell: nn.Cell) -> None:
    """Note the rates of a cell's optimizers as the rates for which the program has asked.

    Call the function before a training or a checkpoint changes the rates. Rates that were noted
    before are not noted again.
    """
    for _, rate in _rates(cell):
        if not hasattr(rate, _ASKED):
            setattr(rate, _ASKED, np.array(rate.asnumpy()))


def asked_rates(cell: nn.Cell) -> dict[str, str]:
    """Return the noted rates as texts, by parameter name. Different rates have different texts.

    Example:
        >>> from mindspore_rec.optim import SGD
        >>> weights = nn.Dense(2, 1).trainable_params()
        >>> asked_rates(SGD(weights, learning_rate=0.1))
        {'learning_rate': '0.1'}
        >>> asked_rates(SGD(weights, learning_rate=[0.2, 0.1]))
        {'learning_rate': '2 rates with CRC32C 3929241589'}
    """
    return {
        rate.name: _text(getattr(rate, _ASKED)) for _, rate in _rates(cell) if hasattr(rate, _ASKED)
    }


def newly_asked(cell: nn.Cell, saved: Mapping[str, str]) -> Iterator[tuple[nn.Optimizer, Any, str]]:
    """Yield the optimizer, the parameter and the text of each rate that differs from `saved`.

    Args:
        cell: the training cell.
        saved: result of `asked_rates` in the program that wrote a checkpoint.
    """
    asked = asked_rates(cell)
    for optimizer, rate in _rates(cell):
        if rate.name in asked and saved.get(rate.name, asked[rate.name]) != asked[rate.name]:
            yield optimizer, rate, asked[rate.name]


def set_changed(cell: nn.Cell, names: set[str]) -> None:
    """Record which rates are not the rates of the checkpoint from which the training continues."""
    for _, rate in _rates(cell):
        setattr(rate, _CHANGED, rate.name in names)


def is_changed(rate: Parameter) -> bool:
    """Return whether `set_changed` has recorded the rate."""
    return bool(getattr(rate, _CHANGED, False))


def _rates(cell: nn.Cell) -> Iterator[tuple[nn.Optimizer, Parameter]]:
    """Yield each parameter of a rate once, with its optimizer. Schedules may have no parameter."""
    seen: set[int] = set()
    # The parts of a CombinedOptimizer come after it, and have the types that callers look at.
    for optimizer in reversed(optimizers_in(cell)):
        rates = getattr(optimizer, "learning_rate", ())
        if isinstance(rates, nn.Cell):
            rates = rates.get_parameters()
        for rate in (rates,) if isinstance(rates, Parameter) else rates:
            if id(rate) not in seen:
                seen.add(id(rate))
                yield optimizer, rate


def _text(rates: np.ndarray) -> str:
    if rates.ndim == 0:
        return str(rates)
    return f"{rates.size} rates with CRC32C {_native.crc32c(rates.tobytes())}"
