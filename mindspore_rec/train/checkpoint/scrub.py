# SPDX-License-Identifier: Apache-2.0
"""TableScrub: compares rows of a training's tables with their digests, a few after each step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["TableScrub"]

_PART_ROWS = 8192  # about 0.2 ms
_MOST_PARTS = 1 << 16
_MOST_SHARE = 0.25  # of the time, after a part
_MOST_NAMED = 10


class TableScrub:
    """Looks for rows that changed by themselves, so that each row is looked at once in a while.

    Of tables that keep digests (`MapParameter.damaged_rows`); rows that were trained since the last
    delta are left out.

    Args:
        tables: the tables.
        seconds: for one round over all of them, if a quarter of the time is enough for it.

    Attributes:
        rounds: number of rounds that have ended.
    """

    def __init__(self, tables: Iterable[TableParameter], seconds: float) -> None:
        self.rounds = 0
        self._tables = list(tables)
        self._seconds = seconds
        self._last = time.monotonic()
        self._begin_round()

    @property
    def active(self) -> bool:
        """Whether a table has digests, in the present round."""
        return self._parts > 0

    def _begin_round(self) -> None:
        self._began = time.monotonic()
        self._left: deque[tuple[TableParameter, int, int]] = deque()
        for table in self._tables:
            if table.stats()["digest_bytes"] > 0:
                parts = min(max(table.row_count // _PART_ROWS, 1), _MOST_PARTS)
                self._left += [(table, part, parts) for part in range(parts)]
        self._parts = len(self._left)

    def step(self) -> None:
        """Look at as many rows as the time since the last call asks for.

        Raises:
            RuntimeError: rows have changed by themselves.
        """
        began, last = time.monotonic(), self._last
        passed = min((began - self._began) / self._seconds, 1.0)
        due = int(passed * self._parts)
        until = began + _MOST_SHARE * (began - last)
        while self._parts - len(self._left) < due:
            self._look(*self._left.popleft())
            if time.monotonic() >= until:
                break
        self._last = time.monotonic()
        if passed >= 1 and not self._left:
            self.rounds += self._parts > 0
            self._begin_round()

    def _look(self, table: TableParameter, part: int, parts: int) -> None:
        try:
            keys = table.damaged_rows(part, parts).tolist()
        except ValueError:  # it keeps none any more: tiers or rules of eviction have been set
            return
        if not keys:
            return
        named = ", ".join(map(str, sorted(keys)[:_MOST_NAMED]))
        more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
        raise RuntimeError(
            f"table '{table.name}': the rows of keys {named}{more} have changed in memory by "
            "themselves. No checkpoint has them so: start again from the last one, before they "
            "are trained on and saved"
        )
