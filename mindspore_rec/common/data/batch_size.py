# SPDX-License-Identifier: Apache-2.0
"""The default batch size of a training."""

from __future__ import annotations

__all__ = ["default_batch_size"]

_MOST_STEPS = 2_000  # of a pass
_SIZES = (256, 512, 1024, 2048, 4096)


def default_batch_size(rows: int) -> int:
    """Return the least batch size of 256 to 4,096 with at most 2,000 steps per pass, else 4,096.

    Example:
        >>> default_batch_size(20_000), default_batch_size(10**6), default_batch_size(10**9)
        (256, 512, 4096)
    """
    return next((size for size in _SIZES if rows <= size * _MOST_STEPS), _SIZES[-1])
