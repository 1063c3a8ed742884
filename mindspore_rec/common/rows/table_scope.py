# SPDX-License-Identifier: Apache-2.0
"""Scopes of table names: each served network has a separate scope of names in the process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["current_scope", "next_number", "own_scope"]

_scopes = itertools.count(1)
_here = threading.local()
_counts: dict[str, itertools.count[int]] = {}  # of the program's scope


def current_scope() -> int:
    """Return the scope for new tables of the calling thread; 0 is the program's scope."""
    return getattr(_here, "scope", 0)


def next_number(kind: str) -> int:
    """Return the index, from 0, of the next unnamed table of a kind in the current scope.

    Each scope counts its tables from 0, so the network that is made first in a scope gets the same
    table names in every scope.
    """
    counts: dict[str, itertools.count[int]] = getattr(_here, "counts", _counts)
    return next(counts.setdefault(kind, itertools.count()))


@contextmanager
def own_scope() -> Iterator[None]:
    """While the block runs, put the tables that this thread makes into a new scope.

    If two tables of one scope have the same name, the newer table is used. Tables of different
    scopes do not conflict. With scopes, a process may have several networks with tables of the same
    names, for example two versions of a model, or a training network and a serving network. The
    scope affects neither a table's name in files nor the table's initial values and digests.

    Example:
        >>> with own_scope():
        ...     inside = current_scope()
        >>> inside > 0, current_scope()
        (True, 0)
    """
    before = vars(_here).copy()
    _here.scope, _here.counts = next(_scopes), {}
    try:
        yield
    finally:
        vars(_here).clear()
        vars(_here).update(before)
