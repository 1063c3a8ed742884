# SPDX-License-Identifier: Apache-2.0
"""Ways along the arrows of a graph, for tests of what may import or include what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["reached"]


def reached(arrows: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return all nodes to which arrows lead from one, directly or through others.

    Example:
        >>> sorted(reached({"a": ["b"], "b": ["c", "b"]}, "a"))
        ['b', 'c']
    """
    found: set[str] = set()
    ahead = list(arrows.get(start, ()))
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += arrows.get(node, ())
    return found
