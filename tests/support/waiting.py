# SPDX-License-Identifier: Apache-2.0
"""Waiting until something is so, for at most so long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["wait_until"]


def wait_until(condition: Callable[[], Any], seconds: float = 300.0) -> None:
    """Wait until a condition is true.

    Raises:
        AssertionError: it is not after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about in {seconds} seconds"
        time.sleep(0.02)
