# SPDX-License-Identifier: Apache-2.0
"""Check of a number's range, in addition to the checks of `mindspore_rec.common.checks`."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["check_least"]


def check_least(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ValueError if a number is too small, too large or infinite.

    Args:
        name: the number's name, for the error message.
        value: the number.
        least: least legal value.
        most: greatest legal value. Default: None, which means no upper limit.

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
