# SPDX-License-Identifier: Apache-2.0
"""Scrubbing in training: digests check rows in memory; checksums check rows on Redis and SSDs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mindspore_rec import _native
from mindspore_rec.common.digests.digest import MOST_PARTS
from mindspore_rec.common.digests.scrub import Slice

if TYPE_CHECKING:
    from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["DigestedRows", "TierRows"]

_PART_ROWS = 8192  # comparing a part takes about 0.2 ms
_TIER_ROWS = 2048
_MOST_NAMED = 10


class DigestedRows:
    """Rows to scrub in tables that keep digests; rows updated after the last delta are skipped.

    Args:
        tables: the tables; tables without digests are left out (see `MapParameter.damaged_rows`).
    """

    pause = 0.0

    def __init__(self, tables: Iterable[TableParameter]) -> None:
        self.active = False
        self._tables = list(tables)
        self._left: deque[tuple[TableParameter, int, int]] = deque()

    def begin(self) -> int:
        """Begin a round; return the number of table parts, each of which counts as one row."""
        self._left.clear()
        for table in self._tables:
            if table.stats()["digest_bytes"] > 0:
                parts = min(max(table.row_count // _PART_ROWS, 1), MOST_PARTS)
                self._left += [(table, part, parts) for part in range(parts)]
        self.active = bool(self._left)
        return len(self._left)

    def look(self) -> Slice:
        """Compare the rows in a part of a table with their digests.

        Raises:
            RuntimeError: a row has changed although no update has written the row.
        """
        if not self._left:  # the last part had damaged rows
            return Slice(0, True)
        table, part, parts = self._left.popleft()
        try:
            keys = table.damaged_rows(part, parts).tolist()
        except ValueError:  # the table no longer keeps digests
            keys = []
        if not keys:
            return Slice(1, not self._left)
        named = ", ".join(map(str, sorted(keys)[:_MOST_NAMED]))
        more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
        raise RuntimeError(
            f"table '{table.name}': the rows of keys {named}{more} have changed in memory by "
            "themselves. No checkpoint has them so: start again from the last one, before they "
            "are trained on and saved"
        )


class TierRows:
    """Rows on Redis and SSDs that scrubbing reads; each row has a checksum.

    Args:
        tables: the tables. Tables that have neither Redis nor an SSD are ignored.
    """

    pause = 60.0

    def __init__(self, tables: Iterable[TableParameter]) -> None:
        self._tables = [t for t in tables if t.cache is not None and t.cache.has_lower_tier]
        self.active = bool(self._tables)
        self._left: deque[TableParameter] = deque()

    def begin(self) -> int:
        """Begin a round; return the number of rows on Redis and SSDs."""
        self._left = deque(self._tables)
        stats = [table.stats() for table in self._tables]
        return sum(int(each.get(f"{kind}_rows", 0)) for each in stats for kind in ("remote", "ssd"))

    def look(self) -> Slice:
        """Read some rows of a table; the tier compares each row with its checksum.

        Raises:
            RowDamagedError: a row has changed although no update has written the row.
                RowDamagedError is a subclass of RuntimeError.
        """
        try:
            rows, ended = self._left[0].scrub_tiers(_TIER_ROWS)
        except _native.RowDamagedError as error:
            raise _native.RowDamagedError(
                f"{error}. No checkpoint has them so: start again from the last one, with "
                "tiers that begin anew (leftover='discard')"
            ) from None
        except (RuntimeError, OSError) as error:  # training says so when it needs the tier
            self._left.rotate(-1)  # the tiers of the other tables may be available
            return Slice(0, False, error, "rows in tiers")
        if ended:
            self._left.popleft()
        return Slice(rows, not self._left)
