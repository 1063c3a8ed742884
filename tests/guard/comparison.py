# SPDX-License-Identifier: Apache-2.0
"""Two recordings of the guard side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["compare", "machine_lines"]


def machine_lines(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each property in which two machines differ."""
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"machine: {name} was {before.get(name)}, is {now.get(name)}"


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Compare runs as `tools/guard.py` writes them.

    Args:
        before, now: of each run by name, its `digests`, and why there are none in `missing` or
            `failed`.

    Returns:
        A line for each run, and whether all that either of them has are the same.

    Example:
        >>> run = {"digests": {"weights": "01"}, "missing": None, "failed": None}
        >>> compare({"ssd": run}, {"ssd": {**run, "digests": {"weights": "02"}}})
        (['ssd: differs in weights (1 of 1)'], False)
    """
    lines, same = [], True
    for name in [*before, *(each for each in now if each not in before)]:
        said, fits = _compared(before.get(name), now.get(name))
        lines.append(f"{name}: {said}")
        same = same and fits
    return lines, same


def _compared(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> tuple[str, bool]:
    if before is None or now is None:
        return f"only in the {'present' if before is None else 'earlier'} recording", False
    for word, run in (("earlier", before), ("present", now)):
        if run["failed"]:
            return f"failed in the {word} recording: {run['failed']}", False
    if before["missing"] and now["missing"]:
        return f"not run: {now['missing']}", True
    for word, run in (("earlier", before), ("present", now)):
        if run["missing"]:
            return f"not run in the {word} recording: {run['missing']}", False
    old, new = before["digests"], now["digests"]
    names = [*old, *(each for each in new if each not in old)]
    differ = [each for each in names if old.get(each) != new.get(each)]
    if differ:
        return f"differs in {', '.join(differ)} ({len(differ)} of {len(names)})", False
    return f"same ({len(names)} digests)", True
