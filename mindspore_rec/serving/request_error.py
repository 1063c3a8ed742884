# SPDX-License-Identifier: Apache-2.0
"""RequestError, and how values of a request are shown in its messages."""

from __future__ import annotations

import reprlib
from typing import Any

__all__ = ["RequestError", "named", "shown"]


class RequestError(ValueError):
    """A request that is answered with status 400; the message says what is wrong with it."""


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 3


def shown(value: Any) -> str:
    """Return a value as a message shows it; of what is large only the beginning is looked at."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return _REPR.repr(value)[:100]


def named(name: str) -> str:
    """Return a name in quotes, shortened where it is long."""
    return f"'{name}'" if len(name) <= 80 else f"'{name[:80]}...'"
