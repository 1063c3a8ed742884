# SPDX-License-Identifier: Apache-2.0
"""ModelEvaluation: one evaluation of a RecModel."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mindspore import Tensor
from mindspore.train import RunContext
from mindspore.train.callback import _CallbackManager

from mindspore_rec.common.parallel.agreed_error import raise_on
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.stream.batches import Batch, BatchSource
from mindspore_rec.train.callbacks.callback_list import callback_list
from mindspore_rec.train.data.finite_batches import check_batch
from mindspore_rec.train.data.given_data import no_batch
from mindspore_rec.train.data.label_range import check_label_range
from mindspore_rec.train.graph.batch_columns import BatchColumns
from mindspore_rec.train.graph.tensors import as_tensors
from mindspore_rec.train.loop.hints import hint_undefined
from mindspore_rec.train.loop.model_parts import ModelParts
from mindspore_rec.train.loop.schema_loss import SchemaEvalCell
from mindspore_rec.train.metrics.base import BinaryMetric
from mindspore_rec.train.workers.feed import Reader
from mindspore_rec.train.workers.worker_data import worker_source
from mindspore_rec.train.workers.worker_feed import evaluation_feed
from mindspore_rec.train.workers.worker_metrics import WorkerMetrics

__all__ = ["ModelEvaluation", "check_learns_nothing"]


class ModelEvaluation(ModelParts):
    """Evaluates the metrics of a `RecModel`; the rows are divided among all workers."""

    def _measure(
        self, valid_dataset: Any, callbacks: Any, progress: bool, epoch: int, finite: bool = True
    ) -> dict[str, Any]:
        from tqdm import tqdm

        source = self._source("valid_dataset", valid_dataset, self._eval_network)
        check_learns_nothing(source)
        group = worker_group()
        source = worker_source(source, group, "valid_dataset")
        self._hint_untrained()
        run = self._callback_params("eval")
        run.eval_network, run.valid_dataset = self._eval_network, valid_dataset
        run.valid_source = source
        run.cur_epoch_num = epoch
        run.finite_columns = finite
        run.batch_num = source.length or sys.maxsize
        run.list_callback = callback_list(callbacks)
        if self._rows is not None:
            self._rows.weigh(self._metric_fns, source.column_names or ())
        self._clear_metrics()
        hidden = not (progress and group.rank == 0 and sys.stderr.isatty())
        with (
            self._mode(),
            _CallbackManager(run.list_callback) as manager,
            tqdm(desc="eval", unit="batch", delay=2, leave=False, disable=hidden) as bar,
            self._caller(self._eval_network).columns.named(lambda: source.column_names),
        ):
            self._evaluate(run, manager, bar, group)
        hint_undefined(self._metric_fns, run.metrics)
        return dict(run.metrics)

    def _eval_columns(self, batch: Batch, columns: BatchColumns, run: Any) -> tuple[Tensor, ...]:
        """Check the columns of the next batch, and return the columns as Tensors."""
        columns.names = batch.names or ()
        where = f"batch {run.cur_step_num} of valid_dataset"
        if run.finite_columns:
            check_batch(batch, columns, where)
        if run.cur_step_num == 0:
            check_label_range(batch.columns, columns, self._loss_fn, where)
        return as_tensors(batch.columns, columns=columns)

    def _evaluate(self, run: Any, manager: Any, bar: Any, group: Group) -> None:
        """Evaluate the batches of this worker; all workers make the same number of steps."""
        context = RunContext(run)
        call = self._caller(self._eval_network)
        metrics = WorkerMetrics(group, self._metric_fns, self._sums_loss())
        feed = evaluation_feed(group, run.valid_source, "valid_dataset")
        batches = run.valid_source.read()

        def read() -> Batch | None:
            batch = next(batches, None)
            if batch is None:
                return None
            columns = self._eval_columns(batch, call.columns, run)
            return replace(batch, columns=columns)

        feed.start(read, Reader(wants_stop=context.get_stop_requested))
        manager.on_eval_begin(context)
        manager.on_eval_epoch_begin(context)
        while (batch := feed.next()) is not None:
            run.cur_step_num += 1
            run.eval_dataset_element = batch.columns
            samples = feed.begin_step(run.cur_step_num, batch)
            manager.on_eval_step_begin(context)
            run.net_outputs = call(False, *batch.columns)
            metrics.update(run.net_outputs, samples, self._update_some)
            bar.update(1)
            manager.on_eval_step_end(context)
            if feed.stopped:
                break
        feed.check()
        if run.cur_step_num == 0:
            raise_on(group.rank, 0, no_batch("valid_dataset", run.valid_source))
        metrics.merge()
        manager.on_eval_epoch_end(context)
        run.metrics = self._get_metrics()
        run.eval_results = dict(run.metrics)
        manager.on_eval_end(context)

    def _update_metrics(self, outputs: Any) -> None:
        """Pass the outputs of the evaluation network to the metrics."""
        cell, every = self._eval_network, self._metric_fns
        if not isinstance(cell, SchemaEvalCell):
            super()._update_metrics(outputs)
            return
        by_name = dict(zip(cell.names(len(outputs)), outputs, strict=True))
        more = {
            name: each
            for name, each in every.items()
            if isinstance(each, BinaryMetric) and len(each.inputs) > 2
        }
        self._metric_fns = {name: each for name, each in every.items() if name not in more}
        try:
            super()._update_metrics(outputs)
        finally:
            self._metric_fns = every
        for metric in more.values():
            metric.update(*(by_name[name] for name in metric.inputs if name in by_name))

    def _update_some(self, metrics: Mapping[str, Any], outputs: Any) -> None:
        every = self._metric_fns
        self._metric_fns = metrics
        try:
            self._update_metrics(outputs)
        finally:
            self._metric_fns = every


def check_learns_nothing(source: BatchSource) -> None:
    """Raise ValueError if a feature pipeline would learn from evaluation data."""
    if source.learns:
        raise ValueError(
            f"valid_dataset is a {type(source).__name__} whose features learn of its batches: "
            "evaluate FeatureBatches(source, pipeline, is_train=False), or a StreamingDataset with "
            "pipeline.apply as its transform"
        )
