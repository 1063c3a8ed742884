# SPDX-License-Identifier: Apache-2.0
"""RecModel: `mindspore.train.Model` for networks with tables, on finite or endless data."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, NoReturn

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import Callback
from mindspore.train.callback import _CallbackManager

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.old_arguments import WithoutEffect, takes_old
from mindspore_rec.common.parallel.agreed_settings import check_same
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.common.stream.interrupt import Interruption
from mindspore_rec.train.callbacks.callback_list import callback_list, evaluation_callbacks
from mindspore_rec.train.callbacks.progress import ProgressBar, StopOnNaN
from mindspore_rec.train.callbacks.validation import (
    EvalLoss,
    Validation,
    check_frequency,
    count_evaluations,
)
from mindspore_rec.train.checkpoint.directory import write_model
from mindspore_rec.train.checkpoint.publication import Publication
from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint
from mindspore_rec.train.data.finite_batches import check_inputs
from mindspore_rec.train.data.given_data import check_read_again, no_batch
from mindspore_rec.train.graph.cell_caller import CellCaller
from mindspore_rec.train.graph.tensors import as_tensors, row_count
from mindspore_rec.train.loop.amp_level import apply_amp_level
from mindspore_rec.train.loop.cells import EvalCell, LossCell
from mindspore_rec.train.loop.hints import hint_mode, hint_sink_mode, warn_interrupted
from mindspore_rec.train.loop.id_columns import PrefetchIds
from mindspore_rec.train.loop.loop import TrainLoop
from mindspore_rec.train.loop.model_evaluation import ModelEvaluation, check_learns_nothing
from mindspore_rec.train.loop.old_arguments import takes_prefetch_ids
from mindspore_rec.train.loop.prefetch import PrefetchStage
from mindspore_rec.train.loop.schema_loss import loss_of
from mindspore_rec.train.loop.schema_metrics import metrics_of
from mindspore_rec.train.loop.schema_training import SchemaTraining, is_raw, schema_of
from mindspore_rec.train.loop.step import TrainStep
from mindspore_rec.train.metrics.summary import TableSummary, TrainSummary
from mindspore_rec.train.models.served import BUILDER, builder_arguments
from mindspore_rec.train.nn.fuse import apply_fuse
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.optim.adam import LazyAdam
from mindspore_rec.train.optim.asked_rates import note_rates
from mindspore_rec.train.optim.in_cell import optimizers_in
from mindspore_rec.train.optim.tables import check_covered
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.workers.peers import Alone, Peers
from mindspore_rec.train.workers.worker_data import agreed_length, worker_source
from mindspore_rec.train.workers.worker_parameters import share_parameters
from mindspore_rec.train.workers.worker_random import draw_apart
from mindspore_rec.train.workers.worker_state import WorkerState

__all__ = ["METRICS", "RecModel"]

METRICS = "metrics"  # name of the entry with the metrics' names in the states of a saved model

_LEARNING_RATE = 0.002  # learning rate of the default optimizer


class RecModel(ModelEvaluation):
    """Model for training, evaluation and prediction of a recommendation network.

    A `RecModel` is a `mindspore.train.Model` with these differences:

    * The data may be a `mindspore.dataset.Dataset`, a `mindspore_rec.stream.BatchSource`, or any
      iterable of whole batches. A batch is a tuple or dict of NumPy arrays. If `loss_fn` is set, a
      batch's last column is the label, and all other columns are the network's inputs. The data may
      be endless, because the model never needs their size.
    * If batches come from `FeatureBatches` or `StreamingDataset`, the network's hash tables receive
      each batch's event time just before the batch's step.
    * Training updates the tables; evaluation and prediction never change the tables. Before the
      first step, the model checks that the optimizer updates every table that is not frozen.
    * Batches may differ in size (see `mindspore_rec.graph.CellCaller`).
    * After Ctrl-C or SIGTERM, training finishes the current step, runs the callbacks'
      `on_train_end` and returns, so that the program can save its state. The summary's
      `interrupted` is True, and the program must check it before it goes on. `train` and `fit` warn
      if there is no `RecCheckpoint`. A second Ctrl-C aborts the training.
    * Each call of the network takes the lock `mindspore_rec.graph.graph_lock`, so several threads
      may predict while another thread trains.
    * `train`, `fit` and `online_train` return a `TrainSummary`.
    * If the network was made from a `Schema`, data may also be rows of raw columns: a
      `mindspore_rec.data.Rows`, a DataFrame, an Arrow Table, or a `StreamSource` such as a
      `KafkaSource`. A model whose network was made from a `Schema` runs in graph mode, whatever
      MindSpore's mode is.

    Args:
        network: cell that computes the prediction from its inputs. If `loss_fn` is None, and the
            network was not made from a schema with labels, the cell computes the loss. If both
            `loss_fn` and `optimizer` are None, the cell may be a whole train step.
        loss_fn: cell that computes the loss from prediction and label. Default: None. If `loss_fn`
            is None, and the network was made from a schema with labels, the loss of these labels is
            used. For labels with two values, the loss is the log loss. For labels that are numbers,
            the loss is half of the squared error, where the unit of the error is the label's
            standard deviation. If rows have weights, the loss of a row is multiplied by the row's
            weight.
        optimizer: an optimizer of `mindspore_rec.optim`, made with all of
            `network.trainable_params()`. Default: None. If `optimizer` and `loss_fn` are None and
            the network's schema has labels, the optimizer is `LazyAdam` with the network's
            `default_learning_rate`, which is 0.002 for most networks.
        metrics: metrics in any form that `Model` accepts, for example from `mindspore_rec.metrics`.
            Default: None. For a network that was made from a schema, the metrics may be a name or a
            list of names. The names are 'auc', 'log_loss', 'normalized_entropy', 'calibration',
            'accuracy', 'gauc' and, for labels that are numbers, 'rmse', 'mse' and 'mae'. Default:
            'auc' and 'log_loss' for labels with two values, and 'rmse' for labels that are numbers.
            If the rows have weights, all metrics that are chosen by name use the weights, except
            'gauc'.
        eval_network: evaluation network; see `Model`. Default: None, which means a network that
            combines `network` and `loss_fn`.
        eval_indexes: indexes of outputs; see `Model`. Default: None.
        amp_level: with 'O1', 'O2' or 'O3', the matrix products of `mindspore_rec.nn` layers have
            bfloat16 inputs. With 'auto', the matrix products have bfloat16 inputs only on a
            processor that can multiply bfloat16. See `compute_dtype` in the documentation of the
            layers. `amp_level` does not change the types of rows, sums and weights. Default: 'O0',
            which changes nothing.
        boost_level: only 'O0' is supported, because other levels change the train step.
        fuse: whether to combine several layers of `mindspore_rec.nn` in the network into one
            operator. See `mindspore_rec.nn.fuse` for the layers that can be combined, and the
            requirements. A warning is given if the layers cannot be combined. If the network is a
            container, such as an `nn.SequentialCell`, nothing is combined and no warning is given.
            Default: False, which leaves the network unchanged.
        **kwargs: only `loss_scale_manager` is supported. `loss_scale_manager` must be a
            `FixedLossScaleManager` that does not drop updates and has the same scale as the
            optimizer's `loss_scale`.

    Attributes:
        prefetch_ids: a function that takes a batch's columns as NumPy arrays. `prefetch_ids`
            returns a dict from table names to the ids that the network will look up. The ids of a
            table are an array or a list of arrays. `prefetch_ids` is required for a table whose
            cache prefetches rows and whose ids the network computes. Set `prefetch_ids` before
            training. Default: None, which suffices if every id is in a column of the batch. If
            `prefetch_ids` is None, the first training step shows which columns contain each table's
            ids.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, or has a value that is not
            supported.
        RuntimeError: the optimizer does not update a table, or a parallel mode is on.

    The class is modelled on `mindspore_rec.RecModel` of MindRec 0.3.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> from mindspore_rec.metrics import AUC
        >>> from mindspore_rec.optim import LazyAdam
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> net = nn.SequentialCell(
        ...     HashEmbeddingLookup(4, ms.int64, name="doc.rec_model"), nn.Flatten(), nn.Dense(8, 1)
        ... )
        >>> ids = np.array([[1, 2], [3, 4]])
        >>> batches = [(ids, np.array([[0], [1]], np.float32))] * 50
        >>> optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
        >>> metrics = {"auc": AUC(from_logits=True)}
        >>> model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer, metrics)
        >>> summary = model.train(1, batches, progress=False)
        >>> summary.steps, summary.samples, summary.tables[0].rows
        (50, 100, 4)
        >>> model.eval(batches, progress=False)
        {'auc': 1.0}
        >>> model.predict(ids).shape
        (2, 1)
    """

    def __init__(
        self,
        network: nn.Cell,
        loss_fn: nn.Cell | None = None,
        optimizer: nn.Optimizer | None = None,
        metrics: Any = None,
        eval_network: nn.Cell | None = None,
        eval_indexes: list[int] | None = None,
        amp_level: str = "O0",
        boost_level: str = "O0",
        *,
        fuse: bool = False,
        **kwargs: Any,
    ) -> None:
        if boost_level != "O0":
            raise ValueError(f"boost_level must be 'O0', got {boost_level!r}")
        if ms.get_auto_parallel_context("parallel_mode") != "stand_alone":
            raise RuntimeError(
                "RecModel needs no parallel mode of MindSpore: reset the auto parallel context, "
                f"whose mode is {ms.get_auto_parallel_context('parallel_mode')!r}; several workers "
                "are started by python -m mindspore_rec.launch"
            )
        apply_fuse(network, fuse)
        apply_amp_level(network, amp_level)
        schema = schema_of(network)
        self._rows = None
        self._chosen_metrics: list[str] | None = None  # names, which `save` records
        if schema is not None:
            own_metrics = not isinstance(metrics, (str, list, tuple, set, NoneType))
            self._rows = SchemaTraining(network, schema, loss_fn is not None, own_metrics)
            if loss_fn is None and schema.labels:
                loss_fn = loss_of(schema)
                if optimizer is None:
                    rate = getattr(network, "default_learning_rate", _LEARNING_RATE)
                    optimizer = LazyAdam(network.trainable_params(), learning_rate=rate)
            if isinstance(metrics, str):
                metrics = [metrics]
            if metrics is None or isinstance(metrics, (list, tuple, set)):
                if metrics is not None:
                    self._chosen_metrics = [str(each) for each in metrics]
                metrics = metrics_of(self._chosen_metrics, schema)
        elif isinstance(metrics, (str, list, tuple)):
            raise TypeError(
                "metrics must be a dict for a network that was not made from a schema, "
                f"got {metrics!r}: metrics={{'auc': mindspore_rec.metrics.AUC(from_logits=True)}}, "
                "or from_logits=False if the network's outputs are probabilities"
            )
        super().__init__(
            network,
            loss_fn,
            optimizer,
            metrics,
            eval_network,
            eval_indexes,
            **kwargs,
        )
        if self._optimizer is not None:
            note_rates(self._optimizer)
        self.prefetch_ids: PrefetchIds | None = None
        self._callers: dict[int, CellCaller] = {}
        self._caller_tables: dict[int, list[Any]] = {}
        self._has_rows = False  # also True after the warning was shown

    # ---- what Model's constructor asks for

    def _build_train_network(self) -> nn.Cell:
        network = self._network
        if self._loss_fn is not None:
            if self._rows is None or self._rows.own_loss:
                network = LossCell(network, self._loss_fn)
            else:
                network = self._rows.loss_cell(network, self._loss_fn)
        if self._optimizer is not None:
            network = TrainStep(network, self._optimizer, self._loss_scale(), fuse=False)
        elif self._loss_scale_manager is not None:
            raise ValueError("loss_scale_manager must be None without an optimizer")
        inputs = self._network.get_inputs()
        if inputs is not None and self._loss_fn is None:
            network.set_inputs(*inputs)
        return network

    def _loss_scale(self) -> float:
        manager = self._loss_scale_manager
        if manager is None:
            return 1.0
        if manager.get_update_cell() is not None or manager.get_drop_overflow_update():
            raise ValueError(
                "loss_scale_manager must be a FixedLossScaleManager with drop_overflow_update=False"
            )
        return float(manager.get_loss_scale())

    def _build_eval_network(
        self, metrics: Any, eval_network: nn.Cell | None, eval_indexes: list[int] | None
    ) -> None:
        if eval_network is None and self._loss_fn is not None:
            if self._rows is None:
                eval_network = EvalCell(self._network, self._loss_fn)
            else:
                eval_network = self._rows.eval_cell(self._network, self._loss_fn, metrics)
            eval_indexes = [0, 1, 2]
        super()._build_eval_network(metrics, eval_network, eval_indexes)

    # ---- training

    @takes_prefetch_ids
    def train(
        self,
        epoch: int,
        train_dataset: Any,
        callbacks: Callback | list[Callback] | None = None,
        dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
        *,
        max_steps: int | None = None,
        progress: bool = True,
        stop_on_nan: bool = True,
    ) -> TrainSummary:
        """Train for a number of epochs.

        Args:
            epoch: number of the last epoch, at least 1. Epochs before a restart from a
                `RecCheckpoint` count too.
            train_dataset: a Dataset, or an iterable of batches. An epoch is one pass over the data.
            callbacks: one callback or several. Default: None.
            dataset_sink_mode: has no effect, because batches are passed one by one; True logs a
                warning once. Default: False.
            sink_size: number of steps per epoch; -1 means that an epoch is one pass over the data.
                If `sink_size` is not -1, an epoch may end in the middle of a pass. Default: -1.
            initial_epoch: number of epochs that an earlier run has finished. Default: 0.
            max_steps: maximum number of steps of the run. Default: None, which means no limit.
            progress: whether to show progress and the summary on standard error. If standard error
                is not a terminal, lines replace the progress bar. Default: True.
            stop_on_nan: if True, a NaN or infinite loss of a step raises an error, before callbacks
                such as a checkpoint are called. A NaN or infinite number in a column of a batch is
                also an error; the error's message names the column and the row. The loss can be
                finite although a column contains NaN, because MindSpore's ReLU turns NaN into 0.
                The argument is ignored if `StopOnNaN` is among the callbacks. Default: True.

        If a cache prefetches (`CacheConfig.prefetch`), batches are read ahead. Batches that are
        read ahead are copied, because the source may reuse its arrays. If a callback or Ctrl-C ends
        the training, the batches that were read ahead and not used for a step are lost. If
        `max_steps` ends the training, no batch is lost.

        Returns:
            Summary of the run.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of range. A ValueError is
                also raised if the data yield no batch, or if the data can be read only once but
                there are several epochs. A ValueError is also raised if a batch has no rows, or
                contains NaN or infinity. A ValueError is also raised if the labels of the first
                batch are outside [0, 1] and the loss is a binary cross-entropy.
            RuntimeError: the optimizer does not update a table, or the data set fails.
            FloatingPointError: the loss is NaN or infinite; rows that the step has updated may
                contain NaN too.
        """
        hint_sink_mode(dataset_sink_mode)
        epoch = check_int("epoch", epoch, 1, sys.maxsize)
        initial_epoch = check_int("initial_epoch", initial_epoch, 0, epoch - 1)
        sink_size = check_int("sink_size", sink_size, -1, sys.maxsize)
        if sink_size == 0:
            raise ValueError("sink_size must be -1 or at least 1, got 0")
        epoch_steps = None if sink_size == -1 else sink_size
        train_dataset = self._arrays("train_dataset", train_dataset, is_train=True)
        group = worker_group()
        if epoch_steps is None and max_steps is None:
            check_read_again("train_dataset", train_dataset, epoch - initial_epoch)
        source = self._source("train_dataset", train_dataset, self._train_network)
        source = worker_source(source, group, "train_dataset")
        count = agreed_length(source.length, group) if epoch_steps is None else epoch_steps
        epochs = epoch - initial_epoch
        total = None if count is None else count * epochs
        run = self._run_params(train_dataset, source, epochs, count, total, max_steps)
        run.initial_epoch, run.cur_epoch_num = initial_epoch, initial_epoch + 1

        def work(loop: TrainLoop) -> None:
            loop.run_passes(source, epochs, epoch_steps, initial_epoch)

        summary = self._run(run, callbacks, max_steps, progress, stop_on_nan, work)
        if summary.interrupted and group.rank == 0:
            if not any(isinstance(each, RecCheckpoint) for each in run.list_callback):
                warn_interrupted(summary.steps)
        return summary

    @takes_prefetch_ids
    @takes_old(
        WithoutEffect("dataset_sink_mode"),
        WithoutEffect("valid_dataset_sink_mode"),
        order=(
            "epoch",
            "train_dataset",
            "valid_dataset",
            "valid_frequency",
            "callbacks",
            "dataset_sink_mode",
            "valid_dataset_sink_mode",
            "sink_size",
            "initial_epoch",
        ),
    )
    def fit(
        self,
        epoch: int,
        train_dataset: Any,
        valid_dataset: Any = None,
        valid_frequency: int | list[int] = 1,
        callbacks: Callback | list[Callback] | None = None,
        *,
        sink_size: int = -1,
        initial_epoch: int = 0,
        max_steps: int | None = None,
        progress: bool = True,
        stop_on_nan: bool = True,
    ) -> TrainSummary:
        """Train for a number of epochs, and evaluate at the ends of epochs.

        The summary's `history` contains the results of the evaluations. Callbacks can read the
        results in `metrics` and `eval_results` of `run_context.original_args()`. The results of an
        evaluation are the values of the model's metrics. If the model has `eval_indexes`, or if it
        has a `loss_fn` and no `eval_network`, the results also contain `eval_loss`, the mean loss
        of the batches. `EarlyStopping` and `ReduceLROnPlateau`, of this library or of
        `mindspore.train`, can monitor each result. Callbacks with methods `on_eval_*`, except
        MindSpore's own callbacks, are also called during the evaluations.

        Args:
            epoch: see `train`.
            train_dataset: see `train`.
            valid_dataset: evaluation data; see `eval`. Each evaluation reads the data from the
                start. Default: None, which means no evaluation.
            valid_frequency: number of epochs between evaluations, at least 1; or a list of the
                epochs, counted from 1, after which to evaluate. Default: 1.
            callbacks: see `train`.
            sink_size: see `train`.
            initial_epoch: see `train`.
            max_steps: see `train`.
            progress: see `train`.
            stop_on_nan: see `train`. The columns of `valid_dataset` are checked too.

        Returns:
            Summary of the run.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of range, or
                `valid_dataset` is empty. A ValueError is also raised if `valid_dataset` is needed
                for several evaluations but can be read only once, or if a feature pipeline would
                learn from `valid_dataset`. A ValueError is also raised if `valid_dataset` is not
                None, and the model either has no metrics or has a metric called 'eval_loss'. In
                addition, `fit` raises every error that `train` raises.
            RuntimeError, FloatingPointError: see `train`.

        The method is modelled on `mindspore.train.Model.fit`.

        Example:
            >>> import numpy as np
            >>> from mindspore_rec import HashEmbeddingLookup
            >>> from mindspore_rec.metrics import AUC
            >>> from mindspore_rec.optim import LazyAdam
            >>> ms.set_context(mode=ms.GRAPH_MODE)
            >>> net = nn.SequentialCell(
            ...     HashEmbeddingLookup(4, ms.int64, name="doc.fit"), nn.Flatten(), nn.Dense(8, 1)
            ... )
            >>> batches = [(np.array([[1, 2], [3, 4]]), np.array([[0], [1]], np.float32))] * 50
            >>> optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
            >>> metrics = {"auc": AUC(from_logits=True)}
            >>> model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer, metrics)
            >>> summary = model.fit(4, batches, batches[:1], valid_frequency=2, progress=False)
            >>> [(step, sorted(results)) for step, results in summary.history]
            [(100, ['auc', 'eval_loss']), (200, ['auc', 'eval_loss'])]
        """
        epoch = check_int("epoch", epoch, 1, sys.maxsize)
        initial_epoch = check_int("initial_epoch", initial_epoch, 0, epoch - 1)
        frequency = check_frequency(valid_frequency)
        all_callbacks = callback_list(callbacks)
        train_dataset = self._arrays("train_dataset", train_dataset, is_train=True)
        valid_dataset = self._arrays("valid_dataset", valid_dataset, is_train=False)
        group = worker_group()
        if group.size > 1:
            chosen = None if valid_dataset is None else frequency
            check_same(group, {"valid_frequency": repr(chosen)})
        if valid_dataset is not None:
            self._check_validation(
                valid_dataset, count_evaluations(frequency, initial_epoch, epoch)
            )
            seen = evaluation_callbacks(all_callbacks)
            self._check_methods_for_custom_callbacks(seen, "fit")
            finite = stop_on_nan and not any(isinstance(each, StopOnNaN) for each in all_callbacks)
            all_callbacks = [
                Validation(self, valid_dataset, frequency, seen, finite),
                *all_callbacks,
            ]
        return self.train(
            epoch,
            train_dataset,
            all_callbacks,
            sink_size=sink_size,
            initial_epoch=initial_epoch,
            max_steps=max_steps,
            progress=progress,
            stop_on_nan=stop_on_nan,
        )

    def _check_validation(self, valid_dataset: Any, evaluations: int) -> None:
        """Check the metrics and data of `fit` before its first step."""
        if not self._metric_fns:
            raise ValueError("metrics must be given to RecModel for a valid_dataset")
        if self._has_eval_loss and "eval_loss" in self._metric_fns:
            raise ValueError(
                "metrics of RecModel must have names other than 'eval_loss', under which fit "
                "returns the mean loss of valid_dataset"
            )
        source = self._source("valid_dataset", valid_dataset, self._eval_network)
        check_learns_nothing(source)
        check_read_again("valid_dataset", valid_dataset, evaluations, "evaluations")
        if source.length == 0:
            raise no_batch("valid_dataset", source)

    @property
    def _has_eval_loss(self) -> bool:
        """True if the evaluations of `fit` measure the loss."""
        return self._eval_indexes is not None

    def _validate(
        self, valid_dataset: Any, callbacks: Sequence[Callback], epoch: int, finite: bool
    ) -> dict[str, Any]:
        """Return the metrics and the mean loss over the data, for an evaluation of `fit`."""
        every = self._metric_fns
        if self._has_eval_loss:
            self._metric_fns = {"eval_loss": EvalLoss(), **every}
        try:
            return self._measure(valid_dataset, list(callbacks), False, epoch, finite)
        finally:
            self._metric_fns = every

    @takes_prefetch_ids
    def online_train(
        self,
        train_dataset: Any,
        callbacks: Callback | list[Callback] | None = None,
        dataset_sink_mode: bool | None = None,
        sink_size: int = 1,
        *,
        max_steps: int | None = None,
        progress: bool = True,
        stop_on_nan: bool = True,
    ) -> TrainSummary:
        """Train on a stream until the stream ends, a callback requests a stop or Ctrl-C is pressed.

        Args:
            train_dataset: a Dataset, or an iterable of batches; the data are read once. A
                `mindspore_rec.stream.StreamingDataset` can be ended by `StopWhen` and resumed from
                its state.
            callbacks: one callback or several. Default: None.
            dataset_sink_mode: has no effect, because batches are passed one by one; True logs a
                warning once. Default: None. In MindRec, the default is True.
            sink_size: number of steps that callbacks treat as an epoch, at least 1. Default: 1.
            max_steps: maximum number of steps of the run. Default: None, which means no limit.
            progress: see `train`. Default: True.
            stop_on_nan: see `train`. Default: True.

        If `CacheConfig.prefetch` is N, N further batches are read before a batch's step begins.
        If the data are a `StreamingDataset`, or `FeatureBatches` over a `StreamingDataset`, the
        step does not wait while the stream has no further rows. If the data are from a source that
        pauses but does not read a `StreamingDataset`, use a small `CacheConfig.prefetch`.

        Returns:
            Summary of the run.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of range, or a batch is
                invalid; see `train`.
            RuntimeError: the optimizer does not update a table, or the stream fails.
            FloatingPointError: see `train`.
        """
        hint_sink_mode(dataset_sink_mode)
        sink_size = check_int("sink_size", sink_size, 1, sys.maxsize)
        train_dataset = self._arrays("train_dataset", train_dataset, is_train=True)
        source = self._source("train_dataset", train_dataset, self._train_network)
        source = worker_source(source, worker_group(), "train_dataset")
        run = self._run_params(train_dataset, source, 1, None, None, max_steps)

        def work(loop: TrainLoop) -> None:
            loop.run_stream(source, sink_size)
            reason = loop.source_stop_reason(source)
            run.stop_reason = run.stop_reason or reason

        return self._run(run, callbacks, max_steps, progress, stop_on_nan, work)

    @property
    def schema(self) -> Schema | None:
        """The schema from which the network was made, or None."""
        return None if self._rows is None else self._rows.schema

    def batches(self, rows: Any, batch_size: int | None = None) -> BatchSource:
        """Return training batches of rows, for a network that was made from a schema.

        `train` and `fit` convert rows to batches automatically. Call `batches` if you also pass the
        batches to another function, such as `RecCheckpoint.restore`.

        Args:
            rows: a `mindspore_rec.data.Rows`, the batches of a `Rows`, a DataFrame, or an Arrow
                Table. If the scales of the schema have learned nothing, they learn from a sample of
                the rows. A `StreamSource` is accepted too. Call `Schema.fit` before passing a
                `StreamSource`, because scales do not learn from a stream.
            batch_size: number of rows per batch. If `rows` already has a batch size (batches or a
                `StreamSource`), `batch_size` must be None. Default: 256 to 4096, depending on the
                number of rows.

        Raises:
            TypeError: `rows` has an unsupported type, or the network has no schema.
            ValueError: rows do not fit the schema, `batch_size` is out of range, or `batch_size` is
                not None although `rows` has a batch size.
        """
        if self._rows is None:
            raise TypeError("the network must be made from a schema to make batches of rows")
        made = self._rows.batches(rows, "rows", self._metric_fns, True, batch_size)
        if not isinstance(made, BatchSource):
            raise TypeError(f"rows must be rows of raw columns, got {type(rows).__name__}")
        return made

    def _arrays(self, argument: str, data: Any, is_train: bool) -> Any:
        """Return batches of arrays if data are rows and the network was made from a schema."""
        if self._rows is None or data is None:
            return data
        return self._rows.batches(data, argument, self._metric_fns, is_train)

    def _run_params(
        self,
        dataset: Any,
        source: BatchSource,
        epochs: int,
        count: int | None,
        total: int | None,
        max_steps: int | None,
    ) -> Any:
        if max_steps is not None:
            max_steps = check_int("max_steps", max_steps, 1, sys.maxsize)
            total = max_steps if total is None else min(total, max_steps)
        run = self._callback_params("train")
        run.epoch_num = epochs
        run.batch_num = sys.maxsize if count is None else count
        run.total_steps = total
        run.train_dataset = dataset
        run.train_source = source
        run.train_dataset_element = None
        run.train_batch = None
        run.train_network = self._train_network
        run.cur_epoch_num = 1
        run.initial_epoch = 0
        run.initial_step = 0
        run.last_save_ckpt_step = None
        run.latest_ckpt_file = None
        run.net_outputs = None
        run.samples = 0
        run.batch_samples = 0
        run.history = []
        run.interrupted = False
        run.stop_reason = ""
        return run

    def _run(
        self,
        run: Any,
        callbacks: Any,
        max_steps: int | None,
        progress: bool,
        stop_on_nan: bool,
        work: Any,
    ) -> TrainSummary:
        self._check_trainable()
        if self._rows is None:
            hint_mode()
        self._has_rows = True  # True after the first step
        tables = tables_of(self._train_network)
        stage = PrefetchStage(tables, self.prefetch_ids)
        peers = self._meet(run, tables, max_steps)
        progress = progress and peers.rank == 0
        timed = [t for t in run.train_source.event_tables(tables) if isinstance(t, HashTable)]
        run.list_callback = callback_list(callbacks, bool(tables)) + (
            [ProgressBar()] if progress else []
        )
        begin = time.perf_counter()
        with (
            self._mode(),
            Interruption() as interruption,
            _CallbackManager(run.list_callback) as manager,
        ):
            loop = TrainLoop(
                self._caller(self._train_network),
                run,
                manager,
                interruption,
                stage,
                timed,
                max_steps,
                peers,
            )
            decided = any(isinstance(each, StopOnNaN) for each in run.list_callback)
            loop.stop_on_nan = bool(stop_on_nan) and not decided
            loop.finite_columns = loop.stop_on_nan
            loop.optimizers = optimizers_in(self._train_network)
            work(loop)
        summary = loop.finish(time.perf_counter() - begin)
        summary.tables = [TableSummary.of(table) for table in tables_of(self._train_network)]
        if progress:
            print(summary, file=sys.stderr, flush=True)
        return summary

    def _meet(self, run: Any, tables: list[Any], max_steps: int | None) -> Alone:
        """Compare the workers' settings, copy worker 0's parameters, and return the workers."""
        group = worker_group()
        if group.size == 1:
            return Alone(run.train_source)
        check_same(group, self._settings(run, tables, max_steps))
        share_parameters(group, self._train_network)
        draw_apart(group, self._network)
        state = WorkerState(group, self._network)
        return Peers(group, run.train_source, self._sums_loss(), state)

    def _settings(self, run: Any, tables: list[Any], max_steps: int | None) -> dict[str, str]:
        """Return the settings that must be the same on all workers, as texts."""
        settings = {
            "the number of epochs": run.epoch_num,
            "the steps of an epoch": run.batch_num,
            "max_steps": max_steps,
            "the tables": [[table.name, table.dim] for table in tables],
            "the dense parameters": [
                [parameter.name, list(parameter.shape), str(parameter.dtype)]
                for parameter in self._train_network.trainable_params()
            ],
        }
        return {name: repr(value) for name, value in settings.items()}

    def _check_trainable(self) -> None:
        """Check the tables again, because another optimizer may have bound a table meanwhile."""
        if self._optimizer is not None:
            check_covered(self._network, self._optimizer)
            return
        check_covered(self._train_network, optimizers_in(self._train_network) or None)

    # ---- evaluation and prediction

    def eval(
        self,
        valid_dataset: Any,
        callbacks: Callback | list[Callback] | None = None,
        dataset_sink_mode: bool = False,
        *,
        progress: bool = True,
    ) -> dict[str, Any]:
        """Compute the metrics over one pass of the data; no table changes.

        Args:
            valid_dataset: a Dataset, or an iterable of batches.
            callbacks: one callback or several. Default: None.
            dataset_sink_mode: has no effect, because batches are passed one by one; True logs a
                warning once. Default: False.
            progress: True to show a progress bar if standard error is a terminal and the call takes
                more than two seconds. Default: True.

        Returns:
            Metrics by name.

        Raises:
            TypeError: `valid_dataset` is not an iterable of batches, or a callback is not a
                Callback.
            ValueError: the model was made without metrics, the data contain no batch, the data
                contain NaN or infinity, or a FeaturePipeline would learn from the batches.
        """
        if not self._metric_fns:
            raise ValueError(
                "metrics must be given to RecModel for an evaluation: RecModel(..., "
                "metrics={'auc': mindspore_rec.AUC(from_logits=True)})"
            )
        hint_sink_mode(dataset_sink_mode)
        valid_dataset = self._arrays("valid_dataset", valid_dataset, is_train=False)
        return self._measure(valid_dataset, callbacks, progress, epoch=1)

    def predict(self, *predict_data: Any, backend: str | None = None, config: Any = None) -> Any:
        """Return the network's output for the inputs; no table changes.

        Args:
            *predict_data: the network's inputs, Tensors or NumPy arrays. For a network that was
                made from a schema, rows are also accepted, as a DataFrame, an Arrow Table, a dict
                of columns, a list of dicts, or a `mindspore_rec.data.Rows`. The rows need no
                labels.
            backend: only None is supported.
            config: only None is supported.

        Returns:
            The network's output. For rows of raw columns, the output is a float32 NumPy array of
            probabilities, or of predicted numbers if the label is a number. The shape is `[N]`, or
            `[N, T]` for several labels.

        Raises:
            TypeError: an input is neither an array nor a Tensor.
            ValueError: `backend` or `config` is not None, no input was passed, or an input contains
                NaN or infinity.
        """
        if backend is not None or config is not None:
            raise ValueError("backend and config must be None: tables live in this process")
        self._hint_untrained()
        with self._mode():
            if self._rows is not None and len(predict_data) == 1 and is_raw(predict_data[0]):
                return self._rows.predict(predict_data[0], self._predict_arrays)
            return self._predict_arrays(*predict_data)

    def predict_after(self, *events: Any) -> Callable[[Any], np.ndarray]:
        """Return a variant of `predict` that adds the events in `events` to the histories.

        If the schema has a `KeptHistoryColumn`, the histories in `predict` contain only events of
        the training. The returned function also uses the events in `events`. If `events` are the
        rows of a test, each row's history also contains the earlier rows of the test, as in `eval`.
        No table changes.

        Args:
            *events: tables of raw columns. The label columns must be included, because they
                determine which rows are events.

        Returns:
            Function from rows to predictions.

        Raises:
            TypeError: the network was not made from a schema.
            ValueError: a column is missing or unreadable.

        Example:
            >>> import pandas as pd
            >>> from mindspore_rec import RecModel, Schema
            >>> from mindspore_rec.feature import (
            ...     CategoryColumn, KeptHistoryColumn, LabelColumn, TimeColumn
            ... )
            >>> from mindspore_rec.models import DIN
            >>> columns = [CategoryColumn("item", table="items"), CategoryColumn("user")]
            >>> columns += [KeptHistoryColumn("recent", of="item", by="user"), TimeColumn("ts")]
            >>> schema = Schema([*columns, LabelColumn("clicked")])
            >>> rows = pd.DataFrame({"user": [1, 1], "item": [2, 3], "ts": [5, 6], "clicked": 1})
            >>> model = RecModel(DIN(schema.fit(rows), name="doc.predict_after"))
            >>> model.predict_after(rows)(rows).shape
            (2,)
        """
        if self._rows is None:
            raise TypeError("the network must be made from a schema to read rows")
        training = self._rows
        tables = training.tables_after(events)

        def predict(rows: Any) -> np.ndarray:
            with self._mode():
                return training.predict(rows, self._predict_arrays, tables)

        return predict

    def _predict_arrays(self, *predict_data: Any) -> Any:
        call = self._caller(self._predict_network)
        inputs = as_tensors(predict_data, columns=call.columns)
        check_inputs(self._predict_network, inputs)
        group = worker_group()
        if group.size > 1:
            group.begin_step(0, [row_count(inputs)] * group.size)  # no worker is idle
        return call(False, *inputs)

    # ---- saving, for networks that were made from a schema

    @property
    def publication(self) -> Publication:
        """Description of network and schema, to pass to a `RecCheckpoint` or `save_checkpoint`.

        With this description, a `Predictor` of the checkpoint accepts raw columns and returns
        probabilities.

        Raises:
            ValueError: the network was not made from a schema, or cannot be constructed from a
                description.
        """
        if self._rows is None:
            raise ValueError(
                "the network must be made from a schema to be described: Publication(builder=...) "
                "names the function that makes another network"
            )
        return Publication(builder=BUILDER, builder_arguments=builder_arguments(self._network))

    @property
    def states(self) -> dict[str, Any]:
        """Learned scales of the schema as a dict, for the argument `states` of a checkpoint."""
        return {} if self._rows is None else {"features": self._rows.schema}

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the model: schema, network, tables, the optimizer's state, and the metrics' names.

        `mindspore_rec.load` loads the model, and `mindspore_rec.serving` serves the model to
        requests with raw columns.

        Args:
            path: directory to make.
            overwrite: whether to replace an existing checkpoint. Default: False.

        Raises:
            ValueError: the network was not made from a schema, or cannot be constructed from a
                description. Use `save_checkpoint` for such networks.
            FileExistsError, OSError: see `save_checkpoint`.
        """
        if self._rows is None:
            raise ValueError(
                "the network must be made from a schema to be saved with its description: "
                "save_checkpoint saves the values of other networks"
            )
        further = {} if self._chosen_metrics is None else {METRICS: self._chosen_metrics}
        write_model(self, path, overwrite, self.states, self.publication, further)

    # ---- what Model has and no network with tables needs

    def build(
        self,
        train_dataset: Any = None,
        valid_dataset: Any = None,
        sink_size: int = -1,
        epoch: int = 1,
        sink_mode: bool = True,
    ) -> None:
        """Raise an error; MindSpore's `build` is for the sink mode, which is not supported.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "build is for the sink mode of Ascend, and RecModel feeds batches one by one: leave "
            "the call out, since the first step of fit, train, eval and predict compiles its graph"
        )

    def infer_train_layout(
        self, train_dataset: Any, dataset_sink_mode: bool = True, sink_size: int = -1
    ) -> None:
        """Raise an error: MindSpore's parallel modes, which shard parameters, are not supported.

        Raises:
            RuntimeError: always.
        """
        _refuse_layouts("infer_train_layout")

    def infer_predict_layout(self, *predict_data: Any, skip_backend_compile: bool = False) -> None:
        """Raise an error, because `RecModel` does not support MindSpore's parallel modes.

        Raises:
            RuntimeError: always.
        """
        _refuse_layouts("infer_predict_layout")


def _refuse_layouts(method: str) -> NoReturn:
    raise RuntimeError(
        f"{method} is for MindSpore's parallel modes, which RecModel does not have: several "
        "workers are started by python -m mindspore_rec.launch, and the placement of a table says "
        "which of them has its rows"
    )
