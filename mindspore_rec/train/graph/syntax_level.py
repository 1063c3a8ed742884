# SPDX-License-Identifier: Apache-2.0
"""Restore MindSpore's syntax level after an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mindspore as ms

__all__ = ["syntax_level_kept"]


@contextmanager
def syntax_level_kept() -> Iterator[None]:
    """Restore MindSpore's `jit_syntax_level` at the end of the context.

    A failed export leaves MindSpore at the level STRICT. At the level STRICT, MindSpore cannot
    compile graphs that assign rows of a MapParameter.

    Example:
        >>> with syntax_level_kept():
        ...     ms.set_context(jit_syntax_level=ms.STRICT)
        >>> ms.get_context("jit_syntax_level") == ms.LAX
        True
    """
    before = ms.get_context("jit_syntax_level")
    try:
        yield
    finally:
        ms.set_context(jit_syntax_level=before)
