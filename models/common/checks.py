# SPDX-License-Identifier: Apache-2.0
"""Checks of values that a configuration or a caller gives; messages name value and legal range."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["check_least", "check_one_of"]


def check_least(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ValueError where a number is below its least value, above its greatest or infinite.

    Args:
        name: the number's name, for the message.
        value: the number.
        least: least legal value.
        most: greatest legal value. Default: None, no limit.

    Example:
        >>> check_least("'train.epochs'", 0, 1)
        Traceback (most recent call last):
        ...
        ValueError: 'train.epochs' must be at least 1, got 0
    """
    if most is None and not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if most is not None and not least <= value <= most:
        raise ValueError(f"{name} must be in [{least}, {most}], got {value}")
    if value == math.inf:
        raise ValueError(f"{name} must be finite, got {value}")


def check_one_of(name: str, value: Any, legal: tuple[str, ...]) -> None:
    """Raise ValueError where a value is none of the legal ones.

    Args:
        name: the value's name, for the message.
        value: the value.
        legal: what it may be.

    Example:
        >>> check_one_of("numbers", "bins", ("concat", "embed"))
        Traceback (most recent call last):
        ...
        ValueError: numbers must be one of 'concat', 'embed', got 'bins'
    """
    if value not in legal:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, legal))}, got {value!r}")
