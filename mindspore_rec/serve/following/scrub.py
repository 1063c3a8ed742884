# SPDX-License-Identifier: Apache-2.0
"""Find a predictor's rows that were corrupted in memory, on Redis or on an SSD.

The scrubber keeps a digest of each row, separate from the rows. As soon as a checkpoint has been
applied, the digests of changed rows are computed from the numbers that lookups read. A thread reads
all rows again and again, a few at a time. The thread compares each row's digest with the stored
digest. No checkpoint is applied during a comparison, so a row that a delta changes is never taken
for a damaged row. The thread delays a request by at most the duration of a small request.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.digests.scrub import Scrub, Slice

__all__ = ["ComparedRows", "NotedTable", "Scrubber", "TableRows"]

logger = logging.getLogger("mindspore_rec")

_BLOCK = 1 << 16  # keys, when digests of many rows are noted
_NOTED_AT_ONCE = 4096  # so that answers wait for no more than the reading of so many
_MOST_NAMED = 10  # keys, in a message and in the report
_MOST_REMEMBERED = 1000  # damaged rows of a table that are told from new ones


class ComparedRows(Protocol):
    """Interface by which the scrubber reads the rows of a table.

    Attributes:
        where: name of the place where the rows are, such as 'host memory', for messages.
        at_once: number of rows that are read in one call.
        leave: True if the table drops old rows, so that rows may disappear without a checkpoint.
    """

    where: str
    at_once: int
    leave: bool

    def keys(self) -> Iterator[np.ndarray]:
        """Yield all keys, int64 `[n]`, a part at a time."""

    def digests(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each row's digest, uint64 `[n]`, and whether each key has a row, bool `[n]`."""


class TableRows:
    """Rows of a table, in this process and in the table's tiers.

    Args:
        table: a `ServedTable` or `TableParameter`.
        tiers: names of the tiers below host memory.
    """

    # Rows on Redis and SSDs have checksums, so reading a damaged row raises an error.
    where = "host memory"

    def __init__(self, table: Any, tiers: tuple[str, ...] = ()) -> None:
        self.at_once = 256 if tiers else 2048
        self.leave = getattr(table, "drops_old_rows", getattr(table, "eviction", None) is not None)
        self._table = table

    def keys(self) -> Iterator[np.ndarray]:
        """Yield all keys, in arrays of at most `_BLOCK` keys."""
        if self._table.vocabulary:
            for first in range(0, self._table.vocabulary, _BLOCK):
                yield np.arange(first, min(first + _BLOCK, self._table.vocabulary))
            return
        keys = self._table.row_keys()
        for begin in range(0, len(keys), _BLOCK):
            yield keys[begin : begin + _BLOCK]

    def digests(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the digest of each key's row (0: no row), and whether each key has a row."""
        rows = self._table.export_keys(keys)
        digests = _native.row_digests(keys, rows["values"])
        digests[~rows["present"]] = 0
        return digests, rows["present"]


class NotedTable:
    """Table wrapper that reports to the scrubber the keys that a checkpoint changes.

    Methods and attributes that the wrapper does not define come from the table.
    """

    def __init__(self, table: Any, note: Callable[[str, Any], None]) -> None:
        self._table = table
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def clear_rows(self) -> None:
        """Drop all rows."""
        self._note("clear", None)
        self._table.clear_rows()

    def erase_rows(self, keys: np.ndarray) -> None:
        """Drop rows."""
        self._note("erase", keys)
        self._table.erase_rows(keys)

    def import_rows(self, keys: np.ndarray, **columns: Any) -> None:
        """Set rows."""
        self._note("import", keys)
        self._table.import_rows(keys, **columns)


class _Table:
    """Digests and damaged rows of one table."""

    def __init__(self, name: str, rows: ComparedRows, vocabulary: int) -> None:
        self.name = name
        self.rows = rows
        self.vocabulary = vocabulary
        self.kept = _native.KeptDigests()
        self.notes: list[tuple[str, Any]] = []
        self.compared = 0
        self.damaged: dict[int, str] = {}  # by key: how

    def index(self) -> None:
        """Compute and keep the digests of all rows."""
        self.notes.clear()
        self.kept.clear()
        self.damaged.clear()
        for keys in self.rows.keys():
            self._keep(keys)

    def settle(self) -> None:
        """Compute and keep the digests of the rows that a checkpoint changed."""
        notes, self.notes = self.notes, []
        for what, keys in notes:
            if what == "clear":
                self.kept.clear()
                self.damaged.clear()
                if self.vocabulary:
                    for every in self.rows.keys():
                        self._keep(every)
                continue
            keys = np.ascontiguousarray(keys, np.int64)
            if self.damaged:
                for key in self.damaged.keys() & set(keys.tolist()):
                    del self.damaged[key]
            if what == "erase":
                self.kept.erase(keys)
            else:
                self._keep(keys)

    def _keep(self, keys: np.ndarray) -> None:
        for begin in range(0, len(keys), _NOTED_AT_ONCE):
            some = np.ascontiguousarray(keys[begin : begin + _NOTED_AT_ONCE], np.int64)
            try:
                digests, present = self.rows.digests(some)
                self.kept.set(some[present], digests[present])
                self.kept.erase(some[~present])
            except Exception as error:  # they are not compared before the next checkpoint has them
                self.kept.erase(some)
                logger.warning("rows of table '%s' are not scrubbed: %s", self.name, error)

    def compare(self, keys: np.ndarray, checks: np.ndarray) -> dict[int, str]:
        """Compare part of each row's digest with the stored part; return a message for each damaged
        key.

        Raises:
            Exception: a tier cannot be read.
        """
        try:
            wrong, present = self._differ(keys, checks)
            if len(wrong):  # a row that reads right the second time was never wrong
                keys, checks = keys[wrong], checks[wrong]
                wrong, present = self._differ(keys, checks)
        except _native.RowDamagedError as error:
            if len(keys) == 1:
                return {int(keys[0]): str(error)}
            half = len(keys) // 2
            first = self.compare(keys[:half], checks[:half])
            return first | self.compare(keys[half:], checks[half:])
        gone = "the table has no such row any more"
        other = f"it has another digest, in {self.rows.where}"
        return {int(keys[i]): other if present[i] else gone for i in wrong.tolist()}

    def _differ(self, keys: np.ndarray, checks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes of keys with a wrong digest, and a bool array: True for each key with
        a row.
        """
        digests, present = self.rows.digests(keys)
        wrong = _native.KeptDigests.checks_of(digests) != checks
        if self.rows.leave and (gone := wrong & ~present).any():
            self.kept.erase(keys[gone])
            wrong &= ~gone
        return np.flatnonzero(wrong), present

    def look(self, keys: np.ndarray, checks: np.ndarray) -> Exception | None:
        """Compare some rows and log new damage; return the error if the rows cannot be read."""
        try:
            damaged = self.compare(keys, checks) if len(keys) else {}
        except Exception as error:
            return error
        self.compared += len(keys)
        if self.damaged:
            for key in (self.damaged.keys() & set(keys.tolist())) - damaged.keys():
                del self.damaged[key]
        new = [key for key in damaged if key not in self.damaged]
        if not new or len(self.damaged) >= _MOST_REMEMBERED:
            return None
        for key in new[: _MOST_REMEMBERED - len(self.damaged)]:
            self.damaged[key] = damaged[key]
        some = "; ".join(f"key {key}: {damaged[key]}" for key in new[:_MOST_NAMED])
        more = f"; and {len(new) - _MOST_NAMED} more" if len(new) > _MOST_NAMED else ""
        logger.error(
            "table '%s': rows that changed by themselves: %s%s. A restart loads them anew",
            *(self.name, some, more),
        )
        return None


class _Tables:
    """Implementation of `ScrubbedRows` for the rows of all tables."""

    active = True
    pause = 1.0

    def __init__(self, tables: list[_Table]) -> None:
        self._tables = tables
        self._left: deque[_Table] = deque()
        self._place = 0  # in the digests of the first table that is left

    def begin(self) -> int:
        """Begin a round; return the number of rows to check."""
        self._left, self._place = deque(self._tables), 0
        return sum(len(table.kept) for table in self._tables)

    def look(self) -> Slice:
        """Compare some rows with their digests."""
        if not self._left:
            return Slice(0, True)
        table = self._left[0]
        keys, checks, self._place = table.kept.next(self._place, table.rows.at_once)
        error = table.look(keys, checks)
        if self._place == 0:
            self._left.popleft()
        return Slice(len(keys), not self._left, error, f"rows of table '{table.name}'")


class Scrubber:
    """Thread that compares all rows of tables with the stored digests, once per round.

    Args:
        rows: rows of each table, by name.
        vocabularies: for each table, the number of ids that always have a row; 0 if the table
            accepts any key.
        seconds: planned duration of a round in seconds. A round compares all rows once.
        lock: lock that is held while a checkpoint is applied, and while some rows are compared.
        whole: function that returns True if the tables contain a complete state.
    """

    def __init__(
        self,
        rows: Mapping[str, ComparedRows],
        vocabularies: Mapping[str, int],
        seconds: float,
        lock: threading.Lock,
        whole: Callable[[], bool] = lambda: True,
    ) -> None:
        self._tables = {name: _Table(name, of, vocabularies[name]) for name, of in rows.items()}
        self._scrub = Scrub(_Tables(list(self._tables.values())), seconds)
        self._seconds = seconds
        self._lock = lock
        self._whole = whole
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def noted(self, tables: Mapping[str, Any]) -> dict[str, NotedTable]:
        """Return wrappers of the tables; checkpoints must be applied to the wrappers."""

        def note(name: str) -> Callable[[str, Any], None]:
            return lambda what, keys: self._tables[name].notes.append((what, keys))

        return {name: NotedTable(table, note(name)) for name, table in tables.items()}

    def index(self) -> None:
        """Compute the digests of all rows; the caller must hold the lock if the tables may
        change."""
        for table in self._tables.values():
            table.index()

    def settle(self) -> None:
        """Compute the digests of rows that a checkpoint changed; the caller must hold the lock."""
        for table in self._tables.values():
            table.settle()

    def forget(self) -> None:
        """Forget the keys of a checkpoint that was not applied; the caller must hold the lock."""
        for table in self._tables.values():
            table.notes.clear()

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def report(self) -> dict[str, Any]:
        """Return the state of scrubbing and the damaged rows, in the form of `Status.scrub`."""
        return {
            "seconds": self._seconds,
            "rounds": self._scrub.rounds,
            "round_seconds": self._scrub.round_seconds,
            "tables": {
                table.name: {
                    "scrubbed_rows": table.compared,
                    "digest_bytes": table.kept.bytes,
                    "damaged_rows": len(table.damaged),
                    "damaged_keys": sorted(list(table.damaged))[:_MOST_NAMED],
                }
                for table in self._tables.values()
            },
        }

    # ---- the thread

    def _run(self) -> None:
        self._scrub.begin()
        pause = 0.0
        while not self._closed.wait(max(pause, 0.0)):
            with self._lock:
                if self._closed.is_set():
                    return
                if self._whole():
                    pause = self._scrub.turn()
                else:
                    self._scrub.begin()
                    pause = _Tables.pause
