# SPDX-License-Identifier: Apache-2.0
"""EventTime: a callback that sets the event time of tables from an input column."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor
from mindspore.train import Callback, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.columns import event_time
from mindspore_rec.common.columns.feature_spec import check_specs
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.train.data.event_tables import event_tables

__all__ = ["EventTime"]


class EventTime(Callback):
    """Callback that sets the event time of tables before a step, from a column of the step's batch.

    Use this callback for batches of a Dataset that `get_insert_func` has converted. Also use this
    callback if batches from another source have no event time, and the network reads a column of
    times. Batches of `FeatureBatches`, and of a `StreamingDataset` whose source has `event_time=`,
    already have an event time. If a batch has an event time, `RecModel` sets this time in the
    tables. The column of times follows the columns of the features, as in batches of
    `get_insert_func`.

    Args:
        specs: FeatureSpec objects, the features of a batch. One feature must be the timestamp.
        tables: the tables in which the event time is set, or the network that contains these
            tables.
        place: index of the times' column in a batch, counted from 0. Default: the number of
            features other than the timestamp; `get_insert_func` puts the times at this index.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, no feature is the timestamp, or a
            table that evicts by age is missing. A TypeError or ValueError is also raised during
            training if a batch has no column of times, or if the times are not seconds since 1970.

    Example:
        >>> from mindspore_rec import EventTime, FeatureSpec, MapParameter
        >>> specs = [FeatureSpec("doc.event_time"), FeatureSpec("time", is_timestamp=True)]
        >>> EventTime(specs, [MapParameter("doc.event_time")]).place
        1
    """

    def __init__(self, specs: Any, tables: Any, place: int | None = None) -> None:
        super().__init__()
        features = check_specs(specs)
        self.tables = event_tables(features, tables)
        self._spec = next(spec for spec in features if spec.is_timestamp)
        self.place = len(features) - 1 if place is None else check_int("place", place, 0, 255)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Set the tables' event time to the event time of the step's batch."""
        batch = run_context.original_args().train_dataset_element
        if self.place >= len(batch):
            raise ValueError(
                f"feature '{self._spec.name}' is in column {self.place}, and the batch has only "
                f"{len(batch)} columns"
            )
        column = batch[self.place]
        seconds = event_time(self._spec, column.asnumpy() if isinstance(column, Tensor) else column)
        group = worker_group()
        if group.size > 1:  # the tables of all workers have one clock
            seconds = max(group.all_gather_json(seconds))
        for table in self.tables:
            table.set_event_time(seconds)
