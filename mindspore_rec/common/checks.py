# SPDX-License-Identifier: Apache-2.0
"""Functions that check arguments; your own cells and configurations may call them too.

Each function returns the value if it is legal, and raises an exception if not. The exception's
message names the argument, the legal range and the illegal value.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from typing import Any

__all__ = ["check_int", "check_number", "check_one_of"]

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel = 3


def _shown(value: Any) -> str:
    """Return a value as one line of text of at most 120 characters."""
    try:
        text = " ".join(_REPR.repr(value).split())
    except ValueError:  # Python refuses to write an int of thousands of digits
        text = f"{type(value).__name__} with thousands of digits"
    return text if len(text) <= 120 else f"{text[:117]}..."


def check_int(argument: str, value: Any, low: int, high: int) -> int:
    """Return `value` as an int in `[low, high]`.

    Raises:
        TypeError: `value` is not an int, or is a bool.
        ValueError: `value` is out of range.

    Example:
        >>> check_int("dim", 16, 1, 8192)
        16
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{argument} must be an int, got {_shown(value)}")
    if not low <= int(value) <= high:
        raise ValueError(f"{argument} must be in [{low}, {high}], got {_shown(value)}")
    return int(value)


def check_number(
    argument: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return `value` as a finite float between `low` and `high`.

    Args:
        argument: name of the argument, for the message.
        value: value of the argument.
        low: least legal value. Default: no limit.
        high: greatest legal value. Default: no limit.
        low_open: True if `low` itself is illegal. Default: False.
        high_open: True if `high` itself is illegal. Default: False.

    Raises:
        TypeError: `value` is not a number, or is a bool.
        ValueError: `value` is NaN, infinite or out of range.

    Example:
        >>> check_number("max_norm", 1)
        1.0
        >>> check_number("beta1", 0.9, low=0, high=1, high_open=True)
        0.9
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{argument} must be a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:  # an int or a fraction above the greatest float
        number = -math.inf if value < 0 else math.inf
    below = number <= low if low_open else number < low
    above = number >= high if high_open else number > high
    if below or above or not math.isfinite(number):
        raise ValueError(
            f"{argument} must be {_range(low, high, low_open, high_open)}, got {_shown(value)}"
        )
    return number


def _range(low: float, high: float, low_open: bool, high_open: bool) -> str:
    if math.isfinite(low) and math.isfinite(high):
        return f"in {'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"
    if math.isfinite(low):
        return f"a finite number {'>' if low_open else '>='} {low:g}"
    if math.isfinite(high):
        return f"a finite number {'<' if high_open else '<='} {high:g}"
    return "finite"


def check_one_of(argument: str, value: Any, legal: tuple[str, ...]) -> str:
    """Return `value` if it is in `legal`.

    Raises:
        ValueError: `value` is not in `legal`.

    Example:
        >>> check_one_of("mode", "sum", ("sum", "mean"))
        'sum'
    """
    if value not in legal:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, legal))}, got {value!r}")
    return str(value)
