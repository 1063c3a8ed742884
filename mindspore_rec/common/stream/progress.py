# SPDX-License-Identifier: Apache-2.0
"""Progress: count a stream's batches and rows, and record the event times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mindspore_rec.common.stream.fetcher import event_seconds

__all__ = ["Progress"]


class Progress:
    """Counter of a stream's batches and rows. The counter also stores the latest event times.

    Args:
        event_column: name of the column that contains the events' times; None if there is no such
            column.

    Attributes:
        event_column: the argument `event_column`.
        batches: total number of batches that this run and earlier runs have read from the stream.
        rows: total number of rows that this run and earlier runs have read from the stream.
        watermark: latest event time of all batches, in seconds since 1970; None without event
            times.
        event_time: latest event time of the last batch, in whole seconds since 1970; None if events
            have no time, or if the time is below 1.

    Example:
        >>> progress = Progress("t")
        >>> progress.count(pa.record_batch({"t": [7.5, 3.0]}))
        >>> progress.count(pa.record_batch({"t": [5.0]}))
        >>> progress.rows, progress.watermark, progress.event_time
        (3, 7.5, 5)
    """

    def __init__(self, event_column: str | None) -> None:
        self.event_column = event_column
        self.batches = self.rows = 0
        self.watermark: float | None = None
        self.event_time: int | None = None
        self._first_batch = 0

    def begin(self) -> None:
        """Begin to count the batches of a new run."""
        self._first_batch = self.batches

    @property
    def batches_of_run(self) -> int:
        """Number of batches read in this run."""
        return self.batches - self._first_batch

    def count(self, batch: pa.RecordBatch) -> None:
        """Count a batch that the stream returns."""
        self.batches += 1
        self.rows += batch.num_rows
        if self.event_column is not None:
            latest = float(event_seconds(batch.column(self.event_column)).max())
            before = -math.inf if self.watermark is None else self.watermark
            self.watermark = max(latest, before)
            self.event_time = int(latest) if latest >= 1 else None

    def state_dict(self) -> dict[str, Any]:
        """Return the counts over all runs as JSON values."""
        return {"batches": self.batches, "rows": self.rows, "watermark": self.watermark}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state_dict` returned."""
        self.batches, self.rows = int(state["batches"]), int(state["rows"])
        self.watermark = state["watermark"]
