# SPDX-License-Identifier: Apache-2.0
"""Tables in shared memory: a class for the writing process and a class for reading processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.rows.quantise import BITS, check_rows, from_bytes
from mindspore_rec.common.rows.served_table import ServedTable

__all__ = ["ReadTable", "SharedTableRows", "WrittenTable", "table_spec", "unknown_row"]

_FILLED_ROWS = 1 << 16


def table_spec(arguments: Mapping[str, Any], rows: str) -> dict[str, Any]:
    """Return the description of a table, in the form that `_native.SharedMemory.create` accepts.

    Args:
        arguments: arguments of `_native.Table`.
        rows: 'float32', 'int8' or 'int4'.
    """
    check_rows(rows)
    return {
        "dim": arguments["dim"],
        "bits": BITS.get(rows, 32),
        "vocabulary": arguments.get("vocabulary", 0),
        "max_idle_steps": arguments.get("max_idle_steps", -1),
        "max_idle_seconds": arguments.get("max_idle_seconds", -1),
        "outside_zeros": arguments.get("outside_zeros", False),
    }


def unknown_row(arguments: Mapping[str, Any], key_dtype: str) -> np.ndarray:
    """Return the values that a lookup returns for keys without a row, float32 `[dim]`."""
    if arguments.get("vocabulary", 0):
        return np.zeros(arguments["dim"], np.float32)  # every id has a row
    table = ServedTable(arguments, key_dtype)
    try:
        return np.ascontiguousarray(table.read_rows(np.zeros(1, np.int64))[0])
    finally:
        table.close()


class WrittenTable:
    """Table to which checkpoints are applied; readers read changes only after publication.

    The class has all methods of `ServedTable` that `check_tables` and `TableUpdate` call.

    Args:
        name: name of the table.
        number: index of the table in the memory.
        arguments, key_dtype: see `ServedTable`.
        rows: type in which the rows are stored, 'float32', 'int8' or 'int4'.
        writer: function that returns the writer of the shared memory.

    Attributes:
        number: index of the table in the memory.
        spec: `arguments` and `key_dtype`.
        drops_old_rows: whether the table drops rows that reach an age limit.
    """

    has_optimizer = False
    state_width = 0
    counts_keys = False
    rows_missing = False

    def __init__(
        self,
        name: str,
        number: int,
        arguments: Mapping[str, Any],
        key_dtype: str,
        rows: str,
        writer: Callable[[], Any],
    ) -> None:
        self.name = name
        self.dim = int(arguments["dim"])
        self.key_dtype = key_dtype
        self.vocabulary = int(arguments.get("vocabulary", 0))
        self.event_time: int | None = None
        self.number = self._number = number
        self.spec = arguments, key_dtype
        self._arguments = arguments
        self._rows = rows
        self._writer = writer
        limits = [arguments.get(f"max_idle_{what}", -1) for what in ("steps", "seconds")]
        self._limits = [limit for limit in limits if limit >= 0]
        self.drops_old_rows = bool(self._limits)
        self._swept = (0, 0)

    def quantise_rows(self, rows: str) -> None:
        """Do nothing, because the rows in memory already have the type `rows`."""
        assert rows == self._rows

    def clear_rows(self) -> None:
        """Drop all rows; a table with a vocabulary then gets its initial rows."""
        self._writer().clear(self._number)
        self._writer().set_first_time(self._number, 0)
        self.event_time = None
        if self.vocabulary:
            self._fill()

    def _fill(self) -> None:
        table = ServedTable(self._arguments, self.key_dtype)
        try:
            for first in range(0, self.vocabulary, _FILLED_ROWS):
                ids = np.arange(first, min(first + _FILLED_ROWS, self.vocabulary))
                self._writer().upsert(self._number, ids, table.read_rows(ids))
        finally:
            table.close()

    def reserve(self, rows: int) -> None:
        """After `clear_rows`, reserve an index for `rows` rows."""
        self._writer().reserve(self._number, rows)

    def import_rows(
        self,
        keys: np.ndarray,
        values: np.ndarray | None = None,
        counts: np.ndarray | None = None,
        last_steps: np.ndarray | None = None,
        last_times: np.ndarray | None = None,
        codes: np.ndarray | None = None,
    ) -> None:
        """Set rows to `values`, or to quantized values (`codes`).

        `keys` are int64 `[n]`, `values` are float32 `[n, dim]`, and `codes` of int8 rows are uint8
        `[n, 4 + dim]`. `last_steps`, `last_times` and `counts` are uint32 `[n]`.
        """
        if codes is not None:
            if self._rows == "int8":
                self._writer().upsert_codes(self._number, keys, codes, last_steps, last_times)
                return
            values = from_bytes(codes, BITS["int8"], self.dim)
        assert values is not None
        self._writer().upsert(self._number, keys, values, last_steps, last_times)

    def erase_rows(self, keys: np.ndarray) -> None:
        """Drop rows."""
        self._writer().erase(self._number, keys)

    def set_event_time(self, seconds: int) -> None:
        """Set the first event time; rows without an event time have the age 0 at this time."""
        self.event_time = seconds
        self._writer().set_first_time(self._number, seconds)

    def set_clock(self, step: int, event_time: int) -> None:
        """Set the watermark; an `event_time` of 0 means that there is no watermark."""
        self.event_time = event_time or None

    def set_horizon(self, step: int, event_time: int) -> None:
        """Set the step and the time from which ages are computed; at intervals, drop old rows."""
        writer = self._writer()
        writer.set_ages_at(self._number, step, event_time)
        passed = max(step - self._swept[0], event_time - self._swept[1])
        if self._limits and passed >= max(1, min(self._limits) // 4):
            writer.erase_old(self._number)
            self._swept = step, event_time

    def close(self) -> None:
        """Do nothing: the memory is freed when the last process closes the descriptor."""


class SharedTableRows:
    """Rows of a table in the newest state in shared memory; the scrubber reads these rows.

    Args:
        table: the table that this process writes.
        reader: reader of the shared memory, used by one thread.
    """

    where = "shared memory"
    at_once = 2048

    def __init__(self, table: WrittenTable, reader: _native.SharedReader) -> None:
        self.leave = table.drops_old_rows
        self._table = table
        self._reader = reader
        self._unknown = unknown_row(*table.spec)

    def keys(self) -> Iterator[np.ndarray]:
        """Yield all keys, one part of the index at a time."""
        for part in range(_native.SHARED_PARTS):
            place = self._reader.enter()
            try:
                keys, _ = self._reader.row_digests(place, self._table.number, part)
            finally:
                self._reader.leave(place)
            yield keys

    def digests(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the digest of each key's row, and an array of bools: True if the key has a row.

        If the table does not drop old rows, the second array is True for all keys. If the table
        drops old rows, the second array is False for each key for which a lookup returns the row
        for unknown keys.
        """
        place = self._reader.enter()
        try:
            rows = self._reader.lookup(
                place, self._table.number, keys, None, self._unknown, self._table.name
            )
        finally:
            self._reader.leave(place)
        present = np.ones(len(keys), bool)
        if self.leave:
            present = (rows.view(np.uint32) != self._unknown.view(np.uint32)).any(1)
        return _native.row_digests(keys, rows), present


class ReadTable:
    """Table in shared memory.

    A thread reads the table only inside the context `_States.inside`.

    Args:
        name: name of the table.
        number: index of the table in the memory.
        unknown: values for a key without a row, float32 `[dim]`.
        reader: the memory's reader.
        place: function that returns the reader slot of the calling thread.
    """

    def __init__(
        self,
        name: str,
        number: int,
        unknown: np.ndarray,
        reader: _native.SharedReader,
        place: Callable[[], int],
    ) -> None:
        self.name = name
        self.dim = len(unknown)
        self._number = number
        self._unknown = unknown
        self._reader = reader
        self._place = place

    def read_rows(self, ids: np.ndarray, padding_key: int | None = None) -> np.ndarray:
        """Return the values of rows in the same form as `ServedTable.read_rows`."""
        return self._reader.lookup(
            self._place(), self._number, ids, padding_key, self._unknown, self.name
        )

    def close(self) -> None:
        """Do nothing."""
