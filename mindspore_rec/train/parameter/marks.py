# SPDX-License-Identifier: Apache-2.0
"""ChangeMarks: the moments since which changes of a table are kept, by holder."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

from mindspore_rec import _native

__all__ = ["ChangeMarks"]


class ChangeMarks:
    """Marks of a table by their holder; changes since the oldest mark are kept.

    A holder is a name, or an object, whose mark is dropped with it: at the next mark that is held.

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
        """Return a mark of this moment; changes since then are kept once it is held."""
        return self._table.mark()

    def held(self, holder: object) -> int | None:
        """Return the mark of a holder, or None."""
        return self._marks(holder).get(holder)

    def hold(self, holder: object, mark: int) -> None:
        """Set the mark of a holder, in place of an earlier one."""
        self._marks(holder)[holder] = mark
        self._release()

    def keep_digest(self) -> None:
        """Have the table keep its digest while rows change, as long as a mark is held.

        The digest takes 8 bytes per row in host memory, 16 if rows are evicted by age, and nothing
        for rows in lower tiers. Rows are hashed when they are exported, demoted or promoted, or
        when a mark is taken, not while they are trained. The first call hashes all rows, and reads
        the rows in lower tiers for it. If a digest is kept already, this does nothing.

        The digest is dropped when memory for it runs out, when a table of a vocabulary is cleared,
        and when a limit of age is turned on or off. It is also dropped when a clock that was put
        back to no event time gets an event time again, and when a damaged row in a lower tier is
        replaced. Call this again after the next mark.

        Raises:
            ValueError: no mark was taken.
            RuntimeError: a lower tier fails, or rows have their newest value on a device; no
                digest is kept then.
        """
        self._table.keep_digest()

    def kept_digest(self) -> int | None:
        """Return the digest that the table keeps, as `HostRows.digest`; None without one.

        It costs as much as a copy of the keys that changed since the last mark.
        """
        return self._table.kept_digest()

    def release(self, holder: object) -> None:
        """Drop the mark of a holder; if no mark is held, no changes are recorded."""
        self._marks(holder).pop(holder, None)
        self._release()

    def release_all(self) -> None:
        """Drop all marks, as if the table were made anew."""
        self._held.clear()
        self._held_by.clear()
        self._release()

    def _marks(self, holder: object) -> MutableMapping[Any, int]:
        return self._held if isinstance(holder, str) else self._held_by

    def _release(self) -> None:
        marks = [*self._held.values(), *self._held_by.values()]
        self._table.release_before(min(marks, default=0))
