# SPDX-License-Identifier: Apache-2.0
"""Errors of requests, and functions that format a request's values for messages."""

from __future__ import annotations

import reprlib
from typing import Any

__all__ = ["NotFoundError", "NotReadyError", "RequestError", "named", "shown"]


class RequestError(ValueError):
    """Error for an invalid request: status 400; the message says what is invalid."""


class NotFoundError(LookupError):
    """Error for an unknown model or an unknown version of a model: status 404."""


class NotReadyError(RuntimeError):
    """Error for a declared model that cannot answer requests now: status 503."""


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 3


def shown(value: Any) -> str:
    """Return a value as text for an error message, shortened if it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return _REPR.repr(value)[:100]


def named(name: str) -> str:
    """Return a name in quotes, shortened if it is long."""
    return f"'{name}'" if len(name) <= 80 else f"'{name[:80]}...'"
