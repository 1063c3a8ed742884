# SPDX-License-Identifier: Apache-2.0
"""State of a table except the rows: id, shape, clock, and counters of keys without a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.argument_errors import names_wrong_arguments
from mindspore_rec.common.rows.native_access import NativeAccess

__all__ = ["TableState"]


@names_wrong_arguments
class TableState(NativeAccess):
    """Id, shape, clock and counters of a table, which checkpoints save besides the rows."""

    counts_keys = True  # whether it has the counters of keys without a row

    _table: _native.Table

    @property
    def id(self) -> int:
        """Unique id of the table; no other table of the process ever has the same id."""
        return self._table.id

    @property
    def vocabulary(self) -> int:
        """Number of ids of a static table (ids start at 0); 0 for a hash table."""
        return self._table.vocabulary

    @property
    def has_optimizer(self) -> bool:
        """True if the table has an optimizer, which means that rows have optimizer state."""
        return self._synchronised().has_optimizer

    @property
    def state_width(self) -> int:
        """Number of floats of optimizer state in a row; 0 without an optimizer."""
        return int(self._synchronised().stats()["state_width"])

    @property
    def row_dtypes(self) -> tuple[str, str]:
        """Types of values and of optimizer states: 'float32', 'bfloat16' or 'float16'."""
        native = self._synchronised()
        return native.value_dtype, native.state_dtype

    def row_sizes(self) -> _native.RowSizes:
        """Return the sizes, in bytes, of each part of a row and of the row's index entry."""
        value, state = self.row_dtypes
        return _native.row_sizes(self._table.dim, self.state_width, value, state, self.scored)

    @property
    def scored(self) -> bool:
        """True if the table stores a frequency or score for each row."""
        eviction = getattr(self, "eviction", None)
        return eviction is not None and eviction.order in ("lfu_decay", "score")

    @property
    def rows_missing(self) -> bool:
        """True if lookups are refused because the network's weights were loaded without the rows.

        See `keep_rows` and `miss_rows`.
        """
        return self._synchronised().rows_missing

    @rows_missing.setter
    def rows_missing(self, missing: bool) -> None:
        self._synchronised().rows_missing = missing

    # ---- clock

    @property
    def step(self) -> int:
        """Number of optimizer steps so far."""
        return self._synchronised().step

    @property
    def event_time(self) -> int | None:
        """Watermark in seconds since 1970, or None before the first event time."""
        return self._synchronised().event_time or None

    def set_event_time(self, seconds: Any) -> None:
        """Set the event time of the next batch, before the lookups of the batch.

        The table's watermark is the greatest event time so far. Late events never decrease the
        watermark. If a late batch looks up a row, the row's age is measured from the watermark.

        Args:
            seconds: whole seconds since 1970, 1 to 2**32 - 1. If `seconds` is an array or Tensor,
                its greatest value is used. An empty array or Tensor changes nothing.

        Raises:
            TypeError, ValueError: `seconds` is not a whole number, or is out of range.
        """
        if hasattr(seconds, "asnumpy"):  # a Tensor
            seconds = seconds.asnumpy()
        if isinstance(seconds, np.ndarray):
            if seconds.size == 0:
                return
            seconds = seconds.max().item()
        if isinstance(seconds, float) and seconds.is_integer():
            seconds = int(seconds)
        where = f"table '{self._table_name}': event time in seconds since 1970"
        self._synchronised().set_event_time(check_int(where, seconds, 1, (1 << 32) - 1))

    @property
    def first_time(self) -> int:
        """First event time in seconds since 1970; 0 without event times.

        If a row was written before any event time was set, its age is measured from the first event
        time.
        """
        return self._synchronised().first_time

    @property
    def horizon(self) -> tuple[int, int]:
        """Step and event time at which rows' ages are measured if `Eviction.trigger` is
        'callback'."""
        return self._synchronised().horizon

    def set_clock(self, step: int, event_time: int) -> None:
        """Set step and watermark, for example from a checkpoint.

        Args:
            step: number of optimizer steps, 0 to 2**32 - 1.
            event_time: seconds since 1970; 0 without event times.
        """
        self._synchronised().set_clock(step, event_time)

    def set_horizon(self, step: int, event_time: int) -> None:
        """Set `horizon`, for example from a checkpoint."""
        self._synchronised().set_horizon(step, event_time)

    # ---- counters of keys that are not admitted

    def export_counters(self) -> dict[str, np.ndarray]:
        """Return counters of keys without a row: `keys`, `counts`, `last_steps` and `last_times`.

        The arrays are empty if the table counts with a sketch (`export_sketch`) or does not count.
        """
        return self._synchronised().export_counters()

    def import_counters(
        self, keys: np.ndarray, counts: np.ndarray, last_steps: np.ndarray, last_times: np.ndarray
    ) -> None:
        """Set counters of keys without a row.

        Raises:
            ValueError: the table does not count single keys, or the shapes of the arrays do not
                fit.
        """
        self._synchronised().import_counters(keys, counts, last_steps, last_times)

    def export_sketch(self) -> bytes:
        """Return the counters of the table's sketch as bytes; empty if the table has no sketch."""
        return self._synchronised().export_sketch()

    def import_sketch(self, memory: bytes) -> None:
        """Set the counters of the table's sketch.

        Raises:
            ValueError: the table has no sketch, or the sketches differ in size.
        """
        self._synchronised().import_sketch(memory)
