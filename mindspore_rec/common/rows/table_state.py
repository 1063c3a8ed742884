# SPDX-License-Identifier: Apache-2.0
"""State of a table besides its rows: id, shape, clock, counters of keys without a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.native_access import NativeAccess

__all__ = ["TableState"]


class TableState(NativeAccess):
    """Number, shape, clock and counters of a table; what a checkpoint saves besides its rows."""

    counts_keys = True  # whether it has the counters of keys without a row

    _table: _native.Table
    _table_name: str

    @property
    def id(self) -> int:
        """Number of the table, which no other table of this process has or had."""
        return self._table.id

    @property
    def vocabulary(self) -> int:
        """Number of ids of a static table, which are 0 up to it; 0 for a hash table."""
        return self._table.vocabulary

    @property
    def has_optimizer(self) -> bool:
        """Whether an optimizer covers the table, so that rows have its state."""
        return self._synchronised().has_optimizer

    @property
    def state_width(self) -> int:
        """Number of floats of optimizer state in a row; 0 before there is an optimizer."""
        return int(self._synchronised().stats()["state_width"])

    @property
    def row_dtypes(self) -> tuple[str, str]:
        """Types of values and of optimizer states: 'float32', 'bfloat16' or 'float16'."""
        native = self._synchronised()
        return native.value_dtype, native.state_dtype

    def row_sizes(self) -> _native.RowSizes:
        """Return the bytes of a row and of what finds it, by part."""
        value, state = self.row_dtypes
        return _native.row_sizes(self._table.dim, self.state_width, value, state, self.scored)

    @property
    def scored(self) -> bool:
        """Whether rows have a frequency or score besides the optimizer's state."""
        eviction = getattr(self, "eviction", None)
        return eviction is not None and eviction.order in ("lfu_decay", "score")

    @property
    def rows_missing(self) -> bool:
        """Whether lookups are refused: weights were loaded without the rows that belong to them.

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
        """Set the event time of the batch to come; to be called before its lookups.

        The table's watermark becomes the greatest so far: late events never turn it back, and rows
        of a late batch count as seen at the watermark.

        Args:
            seconds: whole seconds since 1970, 1 to 2**32 - 1; of several (an array or Tensor) the
                greatest.

        Raises:
            TypeError, ValueError: not whole seconds in that range.
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
        """First event time in seconds since 1970; rows from before it count from it. 0: none."""
        return self._synchronised().first_time

    @property
    def horizon(self) -> tuple[int, int]:
        """Step and event time at which ages of rows are measured, if a trigger evicts."""
        return self._synchronised().horizon

    def set_clock(self, step: int, event_time: int) -> None:
        """Set step and watermark, as when a checkpoint is loaded.

        Args:
            step: number of optimizer steps, 0 to 2**32 - 1.
            event_time: seconds since 1970; 0 for none.
        """
        self._synchronised().set_clock(step, event_time)

    def set_horizon(self, step: int, event_time: int) -> None:
        """Set `horizon`, as when a checkpoint is loaded."""
        self._synchronised().set_horizon(step, event_time)

    # ---- counters of keys that are not admitted

    def export_counters(self) -> dict[str, np.ndarray]:
        """Return the counters of keys without a row: `keys`, `counts`, `last_steps`, `last_times`.

        Empty if the table counts by a sketch or does not count.
        """
        return self._synchronised().export_counters()

    def import_counters(
        self, keys: np.ndarray, counts: np.ndarray, last_steps: np.ndarray, last_times: np.ndarray
    ) -> None:
        """Set counters of keys without a row.

        Raises:
            ValueError: the table does not count single keys; shapes that do not fit.
        """
        self._synchronised().import_counters(keys, counts, last_steps, last_times)

    def export_sketch(self) -> bytes:
        """Return the counters of a sketch as they are in memory; empty if there is none."""
        return self._synchronised().export_sketch()

    def import_sketch(self, memory: bytes) -> None:
        """Set the counters of a sketch.

        Raises:
            ValueError: the table has no sketch, or one of another size.
        """
        self._synchronised().import_sketch(memory)
