# SPDX-License-Identifier: Apache-2.0
"""ChangeMarks: marks (points in time) after which a table records its changes."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from mindspore_rec import _native

__all__ = ["ChangeMarks"]


class ChangeMarks:
    """Marks (points in time) after which a table records its changes; each holder has one mark.

    A holder is a name or an object. If a holder is deleted, the holder's mark is dropped when
    another mark is set.

    Args:
        table: the native table.

    Example:
        >>> import numpy as np
        >>> table = _native.Table(name="doc.marks", dim=1)
        >>> marks = ChangeMarks(table)
        >>> marks.hold("checkpoint", marks.new())
        >>> table.put(np.array([7]), np.ones((1, 1), np.float32))
        >>> marks.hold("export", marks.new())  # keeps what the other holder needs
        >>> table.export_since(marks.held("checkpoint"))["keys"].tolist()
        [7]
        >>> table.close()
    """

    def __init__(self, table: _native.Table) -> None:
        self._table = table
        self._held: dict[str, int] = {}
        self._held_by: WeakKeyDictionary[object, int] = WeakKeyDictionary()

    def new(self) -> int:
        """Return a new mark; call `hold` to make the table record all changes since the mark."""
        return self._table.mark()

    def held(self, holder: object) -> int | None:
        """Return the mark that a holder has set, or None if the holder has set no mark."""
        return self._marks(holder).get(holder)

    def hold(self, holder: object, mark: int) -> None:
        """Set the mark of a holder; the new mark replaces the holder's earlier mark."""
        self._marks(holder)[holder] = mark
        self._release()

    def keep_digest(self) -> None:
        """Update a digest of the table at each change of a row, until the last mark is dropped.

        The digest takes 8 bytes per row in host memory, or 16 bytes if rows are evicted by age. For
        rows in lower tiers, the digest takes no memory. Rows are hashed when they are exported,
        demoted or promoted, and when `new` returns a mark. Training does not hash rows. The first
        call hashes all rows, and reads rows in lower tiers to hash them. If the table already keeps
        a digest, the call does nothing.

        The table drops the digest when memory runs out, when a static table is cleared, and when
        eviction by age is turned on or off. The table also drops the digest when a damaged row in a
        lower tier is replaced. The table also drops the digest when its event-time clock is reset
        and then set again. After the table has dropped the digest, set a new mark and call this
        method to get a new digest.

        Raises:
            ValueError: the table has no mark after which it records changes.
            RuntimeError: a lower tier fails, or the newest values of some rows are on a device.
                After a RuntimeError, the table keeps no digest.
        """
        self._table.keep_digest()

    def kept_digest(self) -> int | None:
        """Return the table's digest (see `HostRows.digest`), or None if the table keeps no digest.

        A call of `kept_digest` takes as long as a copy of the keys that have changed since the last
        mark.
        """
        return self._table.kept_digest()

    def release(self, holder: object) -> None:
        """Drop the mark of a holder; if no mark remains, the table stops recording changes."""
        self._marks(holder).pop(holder, None)
        self._release()

    def release_all(self) -> None:
        """Drop all marks of the table."""
        self._held.clear()
        self._held_by.clear()
        self._release()

    def _marks(self, holder: object) -> MutableMapping[Any, int]:
        return self._held if isinstance(holder, str) else self._held_by

    def _release(self) -> None:
        marks = [*self._held.values(), *self._held_by.values()]
        self._table.release_before(min(marks, default=0))
