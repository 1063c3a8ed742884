# SPDX-License-Identifier: Apache-2.0
"""Scopes of tables' names: networks that are served have names of their own in the process."""

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
    """Return the scope of tables that the calling thread makes now; 0: the program's scope."""
    return getattr(_here, "scope", 0)


def next_number(kind: str) -> int:
    """Return the number of the next table without a name, of its kind and in this scope, from 0.

    So a network that a program makes first, and the same network in a scope of its own, have the
    same names.
    """
    counts: dict[str, itertools.count[int]] = getattr(_here, "counts", _counts)
    return next(counts.setdefault(kind, itertools.count()))


@contextmanager
def own_scope() -> Iterator[None]:
    """Give the tables that this thread makes inside a scope that no other tables have.

    If two tables of one scope have one name, the newer is used. Tables of different scopes do not
    meet: two versions of a model, or the network that trains and the network that serves, have
    tables of the same names side by side. Nothing but that depends on the scope: a table's name in
    files, its first values and its digests are the same in each.

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
