# SPDX-License-Identifier: Apache-2.0
"""NotExportableError: a network cannot be written in a form that runs without MindSpore."""

from __future__ import annotations

__all__ = ["NotExportableError"]


class NotExportableError(Exception):
    """Raised if a network cannot be served without MindSpore; the message contains the reason."""
