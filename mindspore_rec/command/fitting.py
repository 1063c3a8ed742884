# SPDX-License-Identifier: Apache-2.0
"""Train a network on the rows of a YAML file, with evaluation, early stopping and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.command.opened import Parts
from mindspore_rec.command.ordering import training_batches
from mindspore_rec.command.settings import Settings, TrainSettings
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.train.callbacks.averaging import WeightAverage
from mindspore_rec.train.callbacks.curves import Curves
from mindspore_rec.train.callbacks.plateau import EarlyStopping
from mindspore_rec.train.callbacks.progress import EvalCallback
from mindspore_rec.train.callbacks.rates import RateSchedule
from mindspore_rec.train.callbacks.resumed import steps_before
from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint
from mindspore_rec.train.graph.mode import prepare_process
from mindspore_rec.train.loop.rec_model import RecModel
from mindspore_rec.train.metrics.summary import TrainSummary
from mindspore_rec.train.models.registry import build
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.optim.adam import LazyAdam
from mindspore_rec.train.optim.tables import table_of

__all__ = [
    "Fitted",
    "Place",
    "averages",
    "checkpoint_at",
    "close_tables",
    "fit",
    "new_model",
    "schedule",
]


@dataclass(frozen=True)
class Place:
    """Directories in which a training is saved.

    Attributes:
        checkpoints: directory of checkpoints, or None.
        events: directory of TensorBoard's event files, or None.
        resume: True continues from the newest checkpoint. Default: False.
    """

    checkpoints: Path | None = None
    events: Path | None = None
    resume: bool = False


@dataclass(frozen=True)
class Fitted:
    """A trained model.

    Attributes:
        model: the model, with the weights of the best evaluation.
        summary: the `TrainSummary` of the training.
        curves: loss, speed and metrics during the training.
        path: the steps that led to the weights, as pairs (number of steps, factor by which the
            learning rates were multiplied in these steps).
        epoch_steps: number of steps of an epoch.
    """

    model: RecModel
    summary: TrainSummary
    curves: Curves
    path: list[tuple[int, float]]
    epoch_steps: int


def new_model(settings: Settings, schema: Schema) -> RecModel:
    """Return an untrained model.

    Raises:
        ValueError: the network lacks a setting of the YAML file, or cannot learn from the columns.
    """
    recipe = {"model": settings.model.name, "settings": dict(settings.model.settings)}
    try:
        net = build(recipe, schema, seed=settings.train.seed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"'model': {error}") from error
    return RecModel(net, optimizer=_optimizer(net.trainable_params(), settings.train))


def _optimizer(parameters: Sequence[Any], train: TrainSettings) -> LazyAdam:
    """Return the optimizer, with a separate learning rate for tables if `table_rate` is set."""
    rate = train.learning_rate
    if train.table_rate == 1:
        return LazyAdam(parameters, rate)
    dense = [each for each in parameters if table_of(each) is None]
    tables = [each for each in parameters if table_of(each) is not None]
    groups: list[dict[str, Any]] = [{"params": tables, "lr": rate * train.table_rate}]
    return LazyAdam([*groups, {"params": dense}] if dense else groups, rate)


def fit(
    settings: Settings,
    schema: Schema,
    parts: Parts,
    place: Place,
    max_steps: int | None = None,
    progress: bool = True,
    further: Sequence[Any] = (),
) -> Fitted:
    """Train a new model.

    Args:
        settings: settings of the YAML file.
        schema: description of the columns.
        parts: training and validation rows.
        place: a `Place`: the directories in which the training is saved.
        max_steps: largest number of steps. Default: no limit.
        progress: True shows progress. Default: True.
        further: callbacks in addition to the callbacks of the settings. Default: none.

    Raises:
        ValueError: the schedule is 'plateau' and there are no validation rows; the model does not
            measure the metric that early stopping monitors; or `new_model` raises the error.
    """
    train = settings.train
    prepare_process(train.seed)
    model = new_model(settings, schema)
    source = model.batches(training_batches(parts.train, schema, train))
    steps = -(-parts.train.count() // train.batch_size)
    curves = Curves(place.events, min(max_steps or sys.maxsize, train.epochs * steps))
    callbacks: list[Any] = [curves, *further, *schedule(train, steps), *averages(train, model)]
    if parts.valid is None and train.schedule == "plateau":
        raise ValueError("'train.schedule' is plateau, which needs validation rows: 'split.valid'")
    if parts.valid is not None:
        callbacks += _evaluations(settings, model, parts.valid, steps)
    callbacks += checkpoint_at(place, train, model, source)
    summary = model.train(train.epochs, source, callbacks, max_steps=max_steps, progress=progress)
    paths = [each.path for each in callbacks if isinstance(each, EarlyStopping) and each.path]
    return Fitted(model, summary, curves, paths[0] if paths else [(curves.steps, 1.0)], steps)


def checkpoint_at(
    place: Place, train: TrainSettings, model: RecModel, source: BatchSource
) -> list[RecCheckpoint]:
    """Return a list with the callback that saves checkpoints; [] if `place.checkpoints` is None.

    If `place.resume` is True, the newest checkpoint is restored first.
    """
    if place.checkpoints is None:
        return []
    checkpoint = RecCheckpoint(
        place.checkpoints, every_seconds=train.checkpoint_seconds, states=model.states
    )
    if place.resume:
        checkpoint.restore(model, source)
    return [checkpoint]


def schedule(
    train: TrainSettings, steps: int, cuts: Sequence[tuple[int, float]] = ()
) -> list[RateSchedule]:
    """Return the schedule of the learning rate.

    `steps` is the number of steps per epoch. `cuts` are pairs of a step and the factor by which the
    rate is multiplied after this step.

    Example:
        >>> [each.factor(4) for each in schedule(TrainSettings(warm_up=0.5), 16)]
        [0.5]
    """
    warm_up = round(train.warm_up * steps)
    total = max(train.epochs * steps, warm_up + 1) if train.schedule == "cosine" else None
    return [RateSchedule(warm_up, total, cuts)] if warm_up or total or cuts else []


def averages(train: TrainSettings, model: RecModel) -> list[WeightAverage]:
    """Return the callback that averages the weights, if the setting `ema` is a number."""
    return [] if train.ema is None else [WeightAverage(model, train.ema)]


def close_tables(model: RecModel) -> None:
    """Close a model's tables, so that the tables of another model can have the same names."""
    for table in tables_of(model.train_network):
        table.close()


class _EvaluationsInEpochs(EvalCallback):
    """Callback that evaluates at even intervals in each epoch, the last time at the epoch's end.

    Args:
        model: the model.
        valid: the validation rows.
        steps: number of steps of an epoch.
        count: number of evaluations per epoch.
    """

    def __init__(self, model: RecModel, valid: Rows, steps: int, count: int) -> None:
        super().__init__(model, valid, at_epoch_end=True)
        self._steps = steps
        self._at = {round(k * steps / count) for k in range(1, count)} - {0, steps}

    @property
    def state_name(self) -> str:
        """The name under which checkpoints store this callback's state."""
        return "EvalCallback"

    def on_train_step_end(self, run_context: Any) -> None:
        """Evaluate if this step is one of the evaluation steps of the epoch."""
        run = run_context.original_args()
        if (steps_before(run) + run.cur_step_num) % self._steps in self._at:
            self._evaluate(run_context)


def _evaluations(settings: Settings, model: RecModel, valid: Rows, steps: int) -> list[Any]:
    """Return the callbacks for evaluation and early stopping.

    Raises:
        ValueError: the model does not measure the metric that early stopping monitors.
    """
    train = settings.train
    evaluation = _EvaluationsInEpochs(model, valid, steps, train.evaluations)
    stopping = train.stopping
    if stopping is None:
        return [evaluation]
    measured = evaluation.metric_names()
    metric = stopping.metric or _first_metric(model, measured)
    if metric not in measured:
        raise ValueError(
            f"'train.early_stopping.metric' must be one of {', '.join(measured)}, got {metric!r}"
        )
    mode = "max" if metric.startswith("auc") else "min"
    assert stopping.patience is not None
    cuts = 1 if train.schedule == "plateau" else 0
    return [evaluation, EarlyStopping(metric, stopping.patience, mode=mode, cuts=cuts)]


def _first_metric(model: RecModel, measured: Sequence[str]) -> str:
    """Return the name of the first label's metric: AUC, or RMSE if the label is a number."""
    assert model.schema is not None
    first = model.schema.labels[0]
    name = "auc" if first.binary else "rmse"
    return name if name in measured else f"{name}.{first.name}"
