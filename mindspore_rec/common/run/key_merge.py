# SPDX-License-Identifier: Apache-2.0
"""Merge several sources of rows, each sorted by key, into one sequence in the order of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["merged_by_key"]


def merged_by_key(sources: Sequence[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """Yield the rows of all sources in the order of their keys, a part at a time.

    Args:
        sources: iterators over parts of rows; the rows have a field `key`. In each source, the keys
            ascend. Each key is in one source only.

    Example:
        >>> kind = np.dtype([("key", "<i8")])
        >>> one, two = np.array([(1,), (4,), (9,)], kind), np.array([(2,), (3,)], kind)
        >>> for part in merged_by_key([iter([one]), iter([two])]):
        ...     print(part["key"].tolist())
        [1, 2, 3]
        [4, 9]
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    heads = [_Head(source) for source in sources]
    while heads := [head for head in heads if head.rows is not None]:
        upto = min(head.last for head in heads)
        rows = np.concatenate([head.take(upto) for head in heads])
        yield rows[np.argsort(rows["key"], kind="stable")]


class _Head:
    """Rows that were read from a source but are not merged yet."""

    def __init__(self, source: Iterator[np.ndarray]) -> None:
        self._source = source
        self.rows: np.ndarray | None = None
        self._read()

    def _read(self) -> None:
        self.rows = next((part for part in self._source if len(part)), None)

    @property
    def last(self) -> int:
        assert self.rows is not None
        return int(self.rows["key"][-1])

    def take(self, upto: int) -> np.ndarray:
        """Remove and return the rows with keys up to `upto`; read a new part if no rows remain."""
        assert self.rows is not None
        end = int(np.searchsorted(self.rows["key"], upto, side="right"))
        taken, rest = self.rows[:end], self.rows[end:]
        if len(rest):
            self.rows = rest
        else:
            self._read()
        return taken
