# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, so that every message names the argument, the legal range and what was
given."""

from __future__ import annotations

import math
import numbers
import reprlib
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel = 3


def _shown(value: Any) -> str:
    """A value in one line; of what is large only the beginning."""
    text = " ".join(_REPR.repr(value).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def check_int(argument: str, value: Any, low: int, high: int) -> int:
    """`value` as an int in `[low, high]`.

    Raises:
        TypeError: it is not an int (a bool is not).
        ValueError: it is outside the range.

    Example:
        >>> check_int("dim", 16, 1, 8192)
        16
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{argument} must be an int, got {_shown(value)}")
    if not low <= int(value) <= high:
        raise ValueError(f"{argument} must be in [{low}, {high}], got {value}")
    return int(value)


def check_number(argument: str, value: Any) -> float:
    """`value` as a finite float.

    Raises:
        TypeError: it is not a number.
        ValueError: it is NaN or infinite.

    Example:
        >>> check_number("max_norm", 1)
        1.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{argument} must be a number, got {_shown(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{argument} must be finite, got {value}")
    return float(value)


def check_one_of(argument: str, value: Any, legal: tuple[str, ...]) -> str:
    """`value` where it is one of the legal names.

    Raises:
        ValueError: it is not.

    Example:
        >>> check_one_of("mode", "sum", ("sum", "mean"))
        'sum'
    """
    if value not in legal:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, legal))}, got {value!r}")
    return str(value)
