# SPDX-License-Identifier: Apache-2.0
"""Errors that all workers find at the same time, told by one of them."""

from __future__ import annotations

import time
from typing import NoReturn

__all__ = ["GRACE", "raise_on"]

GRACE = 10.0
"""Seconds that the other workers wait before they raise the error too."""


def raise_on(rank: int, worker: int, error: Exception) -> NoReturn:
    """Raise an error that all workers have found: at once on one, later on the other workers.

    A worker that ends with an error ends the job, so its sentence is the only one in the output. If
    the program goes on after the error, the other workers raise it too, after `GRACE` seconds.

    Args:
        rank: number of this worker.
        worker: number of the worker that the error is about.
        error: what is raised.

    Example:
        >>> raise_on(0, 0, ValueError("worker 0 has no data"))
        Traceback (most recent call last):
        ...
        ValueError: worker 0 has no data
    """
    if rank != worker:
        time.sleep(GRACE)
    raise error
