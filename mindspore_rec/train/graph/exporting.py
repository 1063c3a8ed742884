# SPDX-License-Identifier: Apache-2.0
"""Detect calls from `mindspore.export`."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["is_exporting"]


def is_exporting() -> bool:
    """Return whether `mindspore.export` is on the call stack.

    Example:
        >>> is_exporting()
        False
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "export" and code.co_filename.endswith("serialization.py"):
            return True
        frame = frame.f_back
    return False
