# SPDX-License-Identifier: Apache-2.0
"""Train a network on the rows of a YAML file, with evaluations, early stop and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.command.label_levels import label_levels
from mindspore_rec.command.opened import Parts
from mindspore_rec.command.settings import Settings
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.train.callbacks.curves import Curves
from mindspore_rec.train.callbacks.plateau import EarlyStopping
from mindspore_rec.train.callbacks.progress import EvalCallback
from mindspore_rec.train.callbacks.resumed import steps_before
from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint
from mindspore_rec.train.graph.mode import prepare_process
from mindspore_rec.train.loop.rec_model import RecModel
from mindspore_rec.train.metrics.summary import TrainSummary
from mindspore_rec.train.models.logistic_regression import LogisticRegression
from mindspore_rec.train.models.registry import build
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.optim.adam import LazyAdam

__all__ = ["Fitted", "Place", "close_tables", "fit", "new_model"]


@dataclass(frozen=True)
class Place:
    """Directories in which a training is saved.

    Attributes:
        checkpoints: directory of checkpoints, or None.
        events: directory of events for TensorBoard, or None.
        resume: whether to continue from the newest checkpoint.
    """

    checkpoints: Path | None = None
    events: Path | None = None
    resume: bool = False


@dataclass(frozen=True)
class Fitted:
    """A trained model.

    Attributes:
        model: the model, with the weights of the best evaluation.
        summary: summary of the training.
        curves: loss, speed and metrics during the training.
    """

    model: RecModel
    summary: TrainSummary
    curves: Curves


def new_model(settings: Settings, schema: Schema) -> RecModel:
    """Return an untrained model.

    Raises:
        TypeError, ValueError: the network has no such setting, or cannot learn from the columns.
    """
    recipe = {"model": settings.model.name, "settings": dict(settings.model.settings)}
    try:
        net = build(recipe, schema, seed=settings.train.seed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"'model': {error}") from error
    optimizer = LazyAdam(net.trainable_params(), settings.train.learning_rate)
    return RecModel(net, optimizer=optimizer)


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
        place: where the training is saved.
        max_steps: largest number of steps. Default: no limit.
        progress: whether to show progress. Default: True.
        further: further callbacks. Default: none.
    """
    train = settings.train
    prepare_process(train.seed)
    model = new_model(settings, schema)
    network = model.predict_network
    if isinstance(network, LogisticRegression):
        network.start_at(float(label_levels(schema, parts).means[0]))
    rows = parts.train.batches(train.batch_size, shuffle=True, seed=train.seed)
    source = model.batches(rows)
    steps = -(-parts.train.count() // train.batch_size)
    curves = Curves(place.events, min(max_steps or sys.maxsize, train.epochs * steps))
    callbacks: list[Any] = [curves, *further]
    if parts.valid is not None:
        callbacks += _evaluations(settings, model, parts.valid, steps)
    if place.checkpoints is not None:
        checkpoint = RecCheckpoint(
            place.checkpoints, every_seconds=train.checkpoint_seconds, states=model.states
        )
        if place.resume:
            checkpoint.restore(model, source)
        callbacks.append(checkpoint)
    summary = model.train(train.epochs, source, callbacks, max_steps=max_steps, progress=progress)
    return Fitted(model, summary, curves)


def close_tables(model: RecModel) -> None:
    """Close a model's tables, so that the tables of another model can have the same names."""
    for table in tables_of(model.train_network):
        table.close()


class _EvaluationsInEpochs(EvalCallback):
    """Evaluations that are evenly spread in each epoch; the last is at the epoch's end.

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
        """Name of the state in checkpoints."""
        return "EvalCallback"

    def on_train_step_end(self, run_context: Any) -> None:
        """Evaluate at the chosen steps of each epoch."""
        run = run_context.original_args()
        if (steps_before(run) + run.cur_step_num) % self._steps in self._at:
            self._evaluate(run_context)


def _evaluations(settings: Settings, model: RecModel, valid: Rows, steps: int) -> list[Any]:
    """Return the callbacks that evaluate, and end the training early.

    Raises:
        ValueError: the model does not measure the metric of the early stop.
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
    return [evaluation, EarlyStopping(metric, stopping.patience, mode=mode)]


def _first_metric(model: RecModel, measured: Sequence[str]) -> str:
    """Return the name of the first label's AUC; of its error if it is a number."""
    assert model.schema is not None
    first = model.schema.labels[0]
    name = "auc" if first.binary else "rmse"
    return name if name in measured else f"{name}.{first.name}"
