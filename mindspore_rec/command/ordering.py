# SPDX-License-Identifier: Apache-2.0
"""Make batches of training rows, in random order or in order of time."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from mindspore_rec.command.settings import TrainSettings
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.batches import ArrowBatches
from mindspore_rec.common.data.read import read
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.data.time_cuts import as_numbers, times_of

__all__ = ["MOST_SORTED", "in_time_order", "training_batches"]

MOST_SORTED = 5_000_000
"""A source with more rows is not sorted here, and must already be in the order of time."""

_WINDOW = 32  # batches


def training_batches(rows: Rows, schema: Schema, train: TrainSettings) -> ArrowBatches:
    """Return batches of training rows, in the order that `train.order` sets.

    Raises:
        ValueError: the order is by time, and `in_time_order` refuses the rows.
    """
    if train.order == "random":
        return rows.batches(train.batch_size, shuffle=True, seed=train.seed)
    return in_time_order(rows, schema).batches(
        train.batch_size, shuffle="near", seed=train.seed, buffer_rows=_WINDOW * train.batch_size
    )


def in_time_order(rows: Rows, schema: Schema) -> Rows:
    """Return the rows sorted by time.

    If the rows are already sorted by time, `rows` is returned unchanged. Unsorted rows are sorted
    in memory. Rows of the same time keep their order, and rows without a time come first.

    Raises:
        ValueError: there is no column of kind time; or the rows are unsorted, and either `sample`
            drops rows or there are more than `MOST_SORTED` rows.
    """
    time = schema.time
    if time is None:
        raise ValueError("'train.order' is time, but no column is of kind time")
    if _is_sorted(rows, time):
        return rows
    thinned = rows.batches(1).selection.sample is not None
    if thinned or rows.count() > MOST_SORTED:
        reason = "rows are thinned" if thinned else f"there are more than {MOST_SORTED:,} rows"
        raise ValueError(
            f"'train.order' is time, and the rows are not in the order of {time.name!r}: sort the "
            f"source by this column, because {reason}"
        )
    table = rows.to_table().combine_chunks()
    times = times_of(table[time.name].combine_chunks(), time.name, time.format)
    return read(table.take(pc.array_sort_indices(times, null_placement="at_start")), schema)


def _is_sorted(rows: Rows, time: Column) -> bool:
    last: np.int64 | None = None
    for batch in rows.select([time.name]):
        times = as_numbers(times_of(batch.column(0), time.name, time.format))
        if not len(times):
            continue
        if (last is not None and times[0] < last) or (np.diff(times) < 0).any():
            return False
        last = times[-1]
    return True
