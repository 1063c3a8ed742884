# SPDX-License-Identifier: Apache-2.0
"""SchemaTraining: batches, loss and metrics that a RecModel makes from its network's schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train import Loss

from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.asked import asked_arrays
from mindspore_rec.common.columns.schema.faults import missing_column
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.batch_size import default_batch_size
from mindspore_rec.common.data.batches import ArrowBatches
from mindspore_rec.common.data.fitting import fit_to_rows
from mindspore_rec.common.data.label_levels import label_levels
from mindspore_rec.common.data.read import read
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.metrics.functional import sigmoid
from mindspore_rec.common.stream.source import StreamSource
from mindspore_rec.train.data.batch_sources import batch_source
from mindspore_rec.train.data.feature_batches import stream_batches
from mindspore_rec.train.data.kept_batches import KeptBatches, logs_after
from mindspore_rec.train.data.schema_batches import WEIGHT, SchemaBatches
from mindspore_rec.train.loop.cells import label_scale_of
from mindspore_rec.train.loop.schema_loss import SchemaEvalCell, SchemaLossCell
from mindspore_rec.train.metrics.base import BinaryMetric
from mindspore_rec.train.metrics.gauc import GAUC
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["SchemaTraining", "is_raw", "schema_of", "start_at_labels"]

_EVAL_BATCH = 8192


def schema_of(network: nn.Cell) -> Schema | None:
    """Return the schema from which a network was made, or None."""
    schema = getattr(network, "schema", None)
    return schema if isinstance(schema, Schema) else None


def is_raw(data: Any) -> bool:
    """Return True if data are rows of raw columns, and False for arrays that a network reads.

    Raises:
        TypeError: `data` is a path, or a Series with one row of a data frame.
    """
    remedy = _remedy(data)
    if remedy is not None:
        raise TypeError(f"rows must be a data frame or mindspore_rec.data.read(...), got {remedy}")
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], Mapping) and _is_row(data[0])
    if isinstance(data, (Tensor, np.ndarray, tuple)):
        return False
    if isinstance(data, (Rows, Mapping)):
        return True
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _remedy(data: Any) -> str | None:
    """If `data` is a path or a Series, explain how to get rows from `data`; else return None."""
    if isinstance(data, (str, os.PathLike)):
        return f"the path {os.fspath(data)!r}: mindspore_rec.data.read(path) has its rows"
    if type(data).__name__ == "Series":
        return "a Series: frame.iloc[[0]] is a data frame of one row, frame.iloc[0] is a Series"
    return None


def _is_row(row: Mapping[str, Any]) -> bool:
    """Return True if a dict is one row, and not the arrays of a batch."""
    return not any(isinstance(each, (np.ndarray, Tensor)) for each in row.values())


def start_at_labels(network: nn.Cell, rows: Rows, weight: str | None = None) -> None:
    """Set up an untrained network so that it predicts roughly the mean of each label of the rows.

    Args:
        network: the network. A network that was not made from a schema does not change.
        rows: training rows.
        weight: name of the column with the weights of thinned rows. Default: None.
    """
    if not isinstance(network, Network) or network.schema is None or network.is_started:
        return
    if network.label_scale is None and not network.last_biases:
        return
    levels = label_levels(network.schema, rows, weight)
    if levels is not None:
        network.start_at(levels.means.tolist(), levels.spreads.tolist())


class SchemaTraining:
    """Batches, loss, metrics and predictions of a network that was made from a schema.

    Args:
        network: the network.
        schema: the schema of the network.
        own_loss: whether the user passed a loss.
        own_metrics: whether the user passed metric objects instead of names of metrics.

    Raises:
        ValueError: the user passed a loss although the schema has a weight.
    """

    def __init__(self, network: nn.Cell, schema: Schema, own_loss: bool, own_metrics: bool) -> None:
        if own_loss and schema.weight is not None:
            raise ValueError(
                "loss_fn must be left out, since the schema has a weight: the default loss of a "
                "schema takes weights"
            )
        self.network = network
        self.schema = schema
        self.own_loss = own_loss
        self.own_metrics = own_metrics

    # ---- cells

    def loss_cell(self, network: nn.Cell, loss_fn: nn.Cell) -> nn.Cell:
        """Return the network with the schema's loss, for rows with or without weights."""
        return SchemaLossCell(network, loss_fn, self.schema)

    def eval_cell(self, network: nn.Cell, loss_fn: nn.Cell, metrics: Any) -> nn.Cell:
        """Return the network that computes loss, prediction, label, group and weight."""
        return SchemaEvalCell(network, loss_fn, self.schema, self.has_group(metrics))

    def has_group(self, metrics: Any) -> bool:
        """Return True if one of the metrics reads the groups of rows."""
        values = metrics.values() if isinstance(metrics, Mapping) else ()
        return self.schema.group is not None and any(isinstance(each, GAUC) for each in values)

    def weigh(self, metrics: Any, names: Sequence[str]) -> None:
        """If the rows have weights, switch on weights in the metrics that were chosen by name.

        Args:
            metrics: metrics of the model, by name.
            names: names of the arrays of a batch, if they are known.
        """
        if self.own_metrics or not isinstance(metrics, Mapping):
            return
        has_weight = self.schema.weight is not None or WEIGHT in names
        for metric in metrics.values():
            if isinstance(metric, BinaryMetric) and metric.takes_weights:
                metric.weigh(has_weight)

    # ---- batches

    def batches(
        self, data: Any, argument: str, metrics: Any, is_train: bool, batch_size: int | None = None
    ) -> Any:
        """Return batches of arrays if data are raw rows; return other data unchanged.

        If the schema has a `KeptHistoryColumn`, the batches contain the histories.

        Args:
            data: the data. Raw rows may be a `Rows`, the batches of a `Rows`, a DataFrame, an Arrow
                Table, or a `StreamSource` of raw columns, such as a `KafkaSource`.
            argument: name of the data in error messages.
            metrics: metrics of the model, by name.
            is_train: True for training data. Data that are neither batches nor a stream are
                shuffled. If the scales of the schema have learned nothing, and the data are not a
                stream, the scales learn from the data.
            batch_size: number of rows per batch; must be None if the data are batches or a stream.
                Default: 256 to 4096, depending on the number of rows, for training; 8192 for
                evaluation.

        Raises:
            TypeError: `data` is a path, or a Series with one row of a data frame.
            ValueError: rows do not fit the schema, the scales have learned nothing, or rows were
                thinned and the loss or a metric ignores the rows' weights. A ValueError is also
                raised if `batch_size` is out of range, or if `batch_size` is not None although the
                data have a batch size.
        """
        made = self._batches(data, argument, metrics, is_train, batch_size)
        if not self.schema.pipeline.kept:
            return made
        if isinstance(made, KeptBatches):
            return made if is_train else made.for_evaluation()
        rows = None
        if isinstance(made, SchemaBatches) and isinstance(made.source, ArrowBatches):
            rows = _all_rows(Rows(made.source.selection), self.schema)
        source = batch_source(made, argument)
        return KeptBatches(source, self.schema, tables_of(self.network), rows, is_train=is_train)

    def _batches(
        self, data: Any, argument: str, metrics: Any, is_train: bool, batch_size: int | None
    ) -> Any:
        rows: Rows
        source: ArrowBatches
        if batch_size is not None and isinstance(data, (StreamSource, ArrowBatches)):
            raise ValueError(
                f"batch_size must be None for {type(data).__name__}, which has a batch size"
            )
        if isinstance(data, StreamSource):
            self.schema.check_fitted()
            return SchemaBatches(stream_batches(data), self.schema, is_train=is_train)
        if isinstance(data, ArrowBatches):
            data.read_texts(self.schema)
            rows, source = Rows(data.selection), data
        elif is_raw(data):
            rows = _rows_of(data, self.schema)
            self._check_schema(rows, argument)
            size = batch_size
            if size is None:
                size = default_batch_size(rows.count()) if is_train else _EVAL_BATCH
            seed = ms.get_seed() or 0
            source = rows.batches(size, shuffle=is_train, seed=seed)
        else:
            return data
        for name in self.schema.raw_columns:
            if name not in rows.names:
                raise missing_column(name, rows.names)
        if is_train:
            weight = source.selection.weight if self.schema.weight is None else None
            fit_to_rows(self.schema, rows, weight)
            if not self.own_loss:
                start_at_labels(self.network, rows, weight)
        else:
            self.schema.check_fitted()
        if not is_train:
            self._check_weights_taken(metrics, source, argument)
        if self.own_loss:
            self._check_not_thinned(source, argument, "a loss_fn of your own takes no weights")
        weight = source.selection.weight if self.schema.weight is None else None
        with_group = not is_train and self.has_group(metrics)
        return SchemaBatches(
            source, self.schema, is_train=is_train, with_group=with_group, weight=weight
        )

    def _check_weights_taken(self, metrics: Any, source: ArrowBatches, argument: str) -> None:
        """Raise ValueError if rows were thinned and a metric would ignore the rows' weights."""
        for name, metric in metrics.items() if isinstance(metrics, Mapping) else ():
            taken = isinstance(metric, BinaryMetric) and (
                metric.weighted if self.own_metrics else metric.takes_weights
            )
            if not taken and not isinstance(metric, Loss):
                reason = f"the metric {name!r} counts rows without weights"
                self._check_not_thinned(source, argument, reason)

    def _check_not_thinned(self, source: ArrowBatches, argument: str, reason: str) -> None:
        if source.selection.sample is not None:
            raise ValueError(f"{argument} must be read without sample=: {reason}")

    def _check_schema(self, rows: Rows, argument: str) -> None:
        if rows.schema is not None and not self.schema.reads_like(rows.schema):
            raise ValueError(f"{argument} must be read with the schema of the network")

    # ---- predictions

    def tables_after(self, events: Sequence[Any]) -> dict[str, Any]:
        """Return the network's tables by name, where a log of events replaces each table of users.

        Args:
            events: tables of raw columns; their rows contain the events.
        """
        tables: dict[str, Any] = {each.name: each for each in tables_of(self.network)}
        if not self.schema.pipeline.kept:
            return tables
        of_all = [_all_rows(_rows_of(each, self.schema), self.schema) for each in events]
        return tables | logs_after(self.schema, tables, lambda: chain(*(of() for of in of_all)))

    def predict(
        self, data: Any, call: Callable[..., Any], tables: Mapping[str, Any] | None = None
    ) -> np.ndarray:
        """Return the predicted probabilities, or the predicted numbers, of rows.

        Args:
            data: raw rows.
            call: function that takes the network's inputs and returns the network's output.
            tables: tables in which histories are looked up. Default: the network's tables.

        Returns:
            float32 ``[N]``, or ``[N, T]`` if the schema has several labels.
        """
        if tables is None:
            tables = {each.name: each for each in tables_of(self.network)}
        batches = _raw_batches(data, self.schema)
        parts = [self._probabilities(batch, call, tables) for batch in batches]
        tasks = max(len(self.schema.labels), 1)
        every = np.concatenate(parts) if parts else np.zeros((0, tasks), np.float32)
        return every[:, 0] if tasks == 1 else every

    def _probabilities(
        self, rows: Any, call: Callable[..., Any], tables: Mapping[str, Any]
    ) -> np.ndarray:
        arrays = asked_arrays(self.schema.pipeline, rows, tables, self.schema.inputs)
        made = call(*(arrays[name] for name in self.schema.inputs))
        scale = label_scale_of(self.network)
        numbers = (made if scale is None else scale(made)).asnumpy().astype(np.float64)
        for task, label in enumerate(self.schema.labels):
            if label.binary:
                numbers[:, task] = sigmoid(numbers[:, task])
        return numbers.astype(np.float32)


def _raw_batches(data: Any, schema: Schema) -> Iterator[Any]:
    names = schema.feature_names
    if isinstance(data, Rows):
        names += [name for name in schema.asked_columns if name in {*data.names} - {*names}]
        for batch in data.with_texts(schema).select(names).batches(_EVAL_BATCH).read():
            yield batch.plain
        return
    rows = to_record_batch(_features_of(data, names, schema.asked_columns))
    for first in range(0, rows.num_rows, _EVAL_BATCH):
        yield rows.slice(first, _EVAL_BATCH)


def _rows_of(data: Any, schema: Schema) -> Rows:
    return data.with_texts(schema) if isinstance(data, Rows) else read(data, schema)


def _all_rows(rows: Rows, schema: Schema) -> Callable[[], Iterator[Any]]:
    """Return a function that reads the columns of events from all rows, in order."""
    read = {str(column) for kept in schema.pipeline.kept for column in kept.columns}
    selected = rows.select([name for name in rows.names if name in read])
    return lambda: (batch.plain for batch in selected.batches(_EVAL_BATCH).read())


def _features_of(data: Any, names: list[str], more: Sequence[str]) -> Any:
    """Return the columns `names` of `data`, and each column in `more` that `data` contains."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(data, list):  # a list of dicts
        data = pd.DataFrame([dict(row) for row in data])
    elif not isinstance(data, (Mapping, pd.DataFrame, pa.Table, pa.RecordBatch)):
        data = pa.table(data)
    known = list(data.schema.names if hasattr(data, "schema") else data)
    for name in names:
        if name not in known:
            raise missing_column(name, [str(each) for each in known])
    names = [*names, *(name for name in more if name in known and name not in names)]
    if isinstance(data, Mapping):
        return {name: data[name] for name in names}
    return data[names] if isinstance(data, pd.DataFrame) else data.select(names)
