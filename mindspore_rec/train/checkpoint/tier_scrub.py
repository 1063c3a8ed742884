# SPDX-License-Identifier: Apache-2.0
"""TierScrub: reads and checks the rows of a training below host memory, a few after each step."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mindspore_rec import _native

if TYPE_CHECKING:
    from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["TierScrub"]

logger = logging.getLogger("mindspore_rec")

_PART_ROWS = 2048
_MOST_SHARE = 0.25  # of the time
_PAUSE = 60.0  # seconds without a try, after a tier that could not be read


class TierScrub:
    """Looks for rows on Redis and SSDs that changed by themselves, each once in a while.

    For tables with these tiers (`MapParameter.scrub_tiers`).

    Args:
        tables: the tables.
        seconds: for one round over all of them, if a quarter of the time is enough for it.

    Attributes:
        rounds: number of rounds that have ended.
    """

    def __init__(self, tables: Iterable[TableParameter], seconds: float) -> None:
        self.rounds = 0
        self._tables = [t for t in tables if t.cache is not None and t.cache.has_lower_tier]
        self._seconds = seconds
        self._said = ""
        self._last = time.monotonic()
        self._not_before = self._last
        self._begin_round()

    @property
    def active(self) -> bool:
        """Whether a table has tiers."""
        return bool(self._tables)

    def _begin_round(self) -> None:
        self._began = time.monotonic()
        self._left = deque(self._tables)
        self._looked = 0
        self._rows = sum(map(_records, self._tables))

    def step(self) -> None:
        """Look at as many rows as the time since the last call asks for.

        Raises:
            RowDamagedError: rows have changed by themselves; a RuntimeError.
        """
        began, last = time.monotonic(), self._last
        if began >= self._not_before:
            try:
                self._look(began + _MOST_SHARE * (began - last))
                busy = time.monotonic() - began
                self._not_before = began + busy / _MOST_SHARE
            except _native.RowDamagedError as error:
                raise _native.RowDamagedError(
                    f"{error}. No checkpoint has them so: start again from the last one, with "
                    "tiers that begin anew (leftover='discard')"
                ) from None
            except (RuntimeError, OSError) as error:  # training says so when it needs the tier
                if str(error) != self._said:
                    logger.warning("rows in tiers cannot be scrubbed now: %s", error)
                self._said = str(error)
                self._not_before = time.monotonic() + _PAUSE
        self._last = time.monotonic()

    def _look(self, until: float) -> None:
        while self._left:
            passed = (time.monotonic() - self._began) / self._seconds
            if passed < 1 and self._looked >= passed * self._rows:
                return
            looked, ended = self._left[0].scrub_tiers(_PART_ROWS)
            self._looked += looked
            if ended:
                self._left.popleft()
            if time.monotonic() >= until:
                break
        if not self._left and time.monotonic() - self._began >= self._seconds:
            self.rounds += bool(self._tables)
            self._said = ""
            self._begin_round()


def _records(table: TableParameter) -> int:
    stats = table.stats()
    return sum(int(stats.get(f"{kind}_rows", 0)) for kind in ("remote", "ssd"))
