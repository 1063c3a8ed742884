# SPDX-License-Identifier: Apache-2.0
"""Who wants to know what changed in a table, and since when."""

from __future__ import annotations

from mindspore_rec import _native

__all__ = ["ChangeMarks"]


class ChangeMarks:
    """The marks of a table by who holds them: changes since the oldest are kept.

    Args:
        table: the native table.

    Example:
        >>> import numpy as np
        >>> table = _native.Table(name="doc.marks", dim=1)
        >>> marks = ChangeMarks(table)
        >>> marks.hold("checkpoint", marks.new())
        >>> table.put(np.array([7]), np.ones((1, 1), np.float32))
        >>> marks.hold("export", marks.new())  # does not release what the other holds
        >>> table.export_since(marks.held("checkpoint"))["keys"].tolist()
        [7]
        >>> table.close()
    """

    def __init__(self, table: _native.Table) -> None:
        self._table = table
        self._held: dict[str, int] = {}

    def new(self) -> int:
        """A mark of this moment; it counts when somebody holds it."""
        return self._table.mark()

    def held(self, who: str) -> int | None:
        """The mark that somebody holds, or None."""
        return self._held.get(who)

    def hold(self, who: str, mark: int) -> None:
        """Gives somebody this mark, in place of an earlier one."""
        self._held[who] = mark
        self._table.release_before(min(self._held.values()))

    def release(self, who: str) -> None:
        """Somebody wants to know no more; when nobody does, nothing is recorded."""
        self._held.pop(who, None)
        self._table.release_before(min(self._held.values(), default=0))
