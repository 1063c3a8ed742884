# SPDX-License-Identifier: Apache-2.0
"""Raise an error that all workers detected: at once on one worker, later on the others."""

from __future__ import annotations

import time
from typing import NoReturn

__all__ = ["GRACE", "raise_on"]

GRACE = 10.0
"""Seconds that the other workers wait before they raise the error too."""


def raise_on(rank: int, worker: int, error: Exception) -> NoReturn:
    """Raise an error that all workers detected: at once on one worker, later on the others.

    A worker that ends with an error ends the job, so the output shows only this worker's error. If
    the program of this worker continues after the error, the other workers raise the error too,
    after `GRACE` seconds.

    Args:
        rank: index of this worker.
        worker: index of the worker that caused the error.
        error: the exception to raise.

    Example:
        >>> raise_on(0, 0, ValueError("worker 0 has no data"))
        Traceback (most recent call last):
        ...
        ValueError: worker 0 has no data
    """
    if rank != worker:
        time.sleep(GRACE)
    raise error
