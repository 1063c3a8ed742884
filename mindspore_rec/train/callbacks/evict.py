# SPDX-License-Identifier: Apache-2.0
"""Eviction callbacks: EvictCallback starts evictions, EvictedKeysCallback reports evicted keys."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from mindspore.train import Callback, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.parameter.dynamics import EvictedKeys
from mindspore_rec.train.parameter.hash_table import HashTable

__all__ = ["EvictCallback", "EvictedKeysCallback"]

logger = logging.getLogger("mindspore_rec")

_MAX = (1 << 31) - 1


class EvictCallback(Callback):
    """Callback that evicts rows at intervals of time or steps, or when a table is too large.

    Each eviction includes all tables that were made with `Eviction(..., trigger="callback")`, even
    if only one table is too large. The age of a row is measured when the callback evicts. After an
    eviction, lookups no longer find the rows that were too old. The memory of evicted rows is freed
    in slices during the following steps, so that training does not pause. After each eviction, the
    interval of time and the interval of steps start again. With several workers, all workers evict
    at the same step. `evict_rows` and `evict_bytes` are limits for the whole table, that is, for
    the rows of all workers together.

    Args:
        evict_enable: whether to evict at all. Default: True.
        evict_time_interval: seconds of wall-clock time between two evictions, 1 to 2**31 - 1, or
            None. Default: a day.
        evict_step_interval: training steps between two evictions, 1 to 2**31 - 1, or None. Default:
            10000.
        evict_rows: if a table has more than `evict_rows` rows, the callback evicts. None: no limit.
            The callback checks the number of rows after each step. The callback evicts only rows
            that the table's `Eviction` allows, so the table may still have more than `evict_rows`
            rows. Default: None.
        evict_bytes: limit on the bytes of a table's rows and index; above the limit, the callback
            evicts. None: no limit. Default: None.

    Attributes:
        evictions: `(step, cause)` of each eviction; the cause is 'time', 'steps', 'rows' or
            'bytes'.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or all intervals
            and limits are None.
        ValueError: no table of the network evicts by callback (raised when training begins).

    The callback is similar to the `EvictHook` of Rec SDK.

    Example:
        >>> EvictCallback(evict_time_interval=3600, evict_step_interval=None).evictions
        []
    """

    def __init__(
        self,
        evict_enable: bool = True,
        evict_time_interval: int | None = 24 * 60 * 60,
        evict_step_interval: int | None = 10000,
        *,
        evict_rows: int | None = None,
        evict_bytes: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(evict_enable, bool):
            raise TypeError(f"evict_enable must be a bool, got {evict_enable!r}")
        self.evict_enable = evict_enable
        self._seconds = _optional("evict_time_interval", evict_time_interval, _MAX)
        self._steps = _optional("evict_step_interval", evict_step_interval, _MAX)
        self._rows = _optional("evict_rows", evict_rows, 1 << 40)
        self._bytes = _optional("evict_bytes", evict_bytes, 1 << 60)
        if all(each is None for each in (self._seconds, self._steps, self._rows, self._bytes)):
            raise ValueError(
                "one of evict_time_interval, evict_step_interval, evict_rows and evict_bytes must "
                "be given"
            )
        self.evictions: list[tuple[int, str]] = []
        self._tables: list[HashTable] = []
        self._step = self._last_step = self._steps_before = 0

    def state_dict(self) -> dict[str, int]:
        """Return the number of steps since the last eviction, as a state for `RecCheckpoint`."""
        return {"steps": self._step - self._last_step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore the number of steps since the last eviction, for the next training."""
        self._steps_before = int(state["steps"])

    def on_train_begin(self, run_context: RunContext) -> None:
        """Find the tables with `Eviction(..., trigger="callback")`."""
        tables = _hash_tables(run_context)
        self._tables = [
            table
            for table in tables
            if table.eviction is not None and table.eviction.trigger == "callback"
        ]
        if not self._tables:
            raise ValueError(
                "EvictCallback needs a table with Eviction(..., trigger='callback'); the tables "
                f"of this network ({_names(tables)}) evict at every step or never"
            )
        self.evictions = []
        self._restart(-self._steps_before)
        self._steps_before = 0
        self._step = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Evict if an interval is over or a table is too large."""
        if not self.evict_enable:
            return
        step = self._step = run_context.original_args().cur_step_num
        cause, rows = self._interval(step), self._row_counts()
        group = worker_group()
        if group.size > 1:  # clocks and row counts differ, but all workers evict at the same step
            every = group.all_gather_json([cause, rows])
            cause = next((each for each, _ in every if each is not None), None)
            rows = [
                (max if table.config.placement == "replicated" else sum)(counts)
                for table, *counts in zip(self._tables, *(each for _, each in every), strict=False)
            ]
        cause = cause or self._too_large(rows)
        if cause is None:
            return
        for table in self._tables:
            table.evict()
        self.evictions.append((step, cause))
        logger.info("step %d: eviction (%s)", step, cause)
        self._restart(step)

    def _restart(self, step: int) -> None:
        self._last_step, self._last_time = step, time.monotonic()

    def _interval(self, step: int) -> str | None:
        if self._steps is not None and step - self._last_step >= self._steps:
            return "steps"
        if self._seconds is not None and time.monotonic() - self._last_time >= self._seconds:
            return "time"
        return None

    def _row_counts(self) -> list[int]:
        """Return the row count of each table on this worker; [] if there is no size limit."""
        if self._rows is None and self._bytes is None:
            return []
        return [int(table.stats()["rows"]) for table in self._tables]

    def _too_large(self, rows: list[int]) -> str | None:
        for table, count in zip(self._tables, rows, strict=False):
            if self._rows is not None and count > self._rows:
                return "rows"
            row_bytes = table.row_sizes().in_host()
            if self._bytes is not None and count * row_bytes > self._bytes:
                return "bytes"
        return None


class EvictedKeysCallback(Callback):
    """Callback that passes evicted keys to a function or file after each step with evictions.

    Args:
        receiver: function with two arguments, a table's name and the table's `EvictedKeys`; or the
            path of a file, to which lines are appended. One line is appended for each key: table,
            key, reason, step and event time, separated by tabs.

    Raises:
        TypeError: `receiver` is neither a callable nor a path.
        ValueError: no hash table of the network evicts (raised when training begins).

    Example:
        >>> callback = EvictedKeysCallback(lambda table, evicted: print(table, evicted.keys))
    """

    def __init__(self, receiver: Callable[[str, EvictedKeys], None] | str | Path) -> None:
        super().__init__()
        if not callable(receiver) and not isinstance(receiver, (str, Path)):
            raise TypeError(f"receiver must be a callable or a path, got {receiver!r}")
        self._receiver = receiver
        self._file: TextIO | None = None
        self._tables: list[HashTable] = []

    def on_train_begin(self, run_context: RunContext) -> None:
        """Start collecting evicted keys."""
        tables = _hash_tables(run_context)
        self._tables = [table for table in tables if table.eviction is not None]
        if not self._tables:
            raise ValueError(
                f"EvictedKeysCallback needs a table that evicts; the tables of this network "
                f"({_names(tables)}) never do"
            )
        if not callable(self._receiver):
            self._file = Path(self._receiver).open("a", encoding="utf-8")
        for table in self._tables:
            table.collect_evicted(True)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Give the receiver all keys that were evicted since the previous step."""
        for table in self._tables:
            evicted = table.take_evicted()
            if len(evicted) == 0:
                continue
            if callable(self._receiver):
                self._receiver(table.name, evicted)
            else:
                self._write(table.name, evicted)

    def on_train_end(self, run_context: RunContext) -> None:
        """Stop collecting evicted keys."""
        self._end()

    def __exit__(self, *error: Any) -> None:
        """If the training has failed, stop collecting evicted keys."""
        self._end()

    def _write(self, name: str, evicted: EvictedKeys) -> None:
        columns = zip(
            evicted.keys.tolist(),
            evicted.reasons.tolist(),
            evicted.steps.tolist(),
            evicted.times.tolist(),
            strict=True,
        )
        assert self._file is not None
        self._file.writelines(f"{name}\t{k}\t{why}\t{step}\t{at}\n" for k, why, step, at in columns)
        self._file.flush()

    def _end(self) -> None:
        for table in self._tables:
            table.collect_evicted(False)
        self._tables = []
        if self._file is not None:
            self._file.close()
            self._file = None


def _hash_tables(run_context: RunContext) -> list[HashTable]:
    network = run_context.original_args().train_network
    return [table for table in tables_of(network) if isinstance(table, HashTable)]


def _names(tables: list[HashTable]) -> str:
    return ", ".join(repr(table.name) for table in tables) or "none"


def _optional(argument: str, value: int | None, high: int) -> int | None:
    return None if value is None else check_int(argument, value, 1, high)
