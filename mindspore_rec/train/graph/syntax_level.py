# SPDX-License-Identifier: Apache-2.0
"""MindSpore's syntax level, which an export must not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mindspore as ms

__all__ = ["syntax_level_kept"]


@contextmanager
def syntax_level_kept() -> Iterator[None]:
    """Put MindSpore's `jit_syntax_level` back: an export that fails leaves it STRICT, and no graph
    that assigns rows of a MapParameter can be compiled then.

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
