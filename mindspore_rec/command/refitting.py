# SPDX-License-Identifier: Apache-2.0
"""Train a new model on training and validation rows, with the steps of the best model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindspore_rec.command.fitting import (
    Fitted,
    Place,
    averages,
    checkpoint_at,
    new_model,
    schedule,
)
from mindspore_rec.command.ordering import training_batches
from mindspore_rec.command.settings import Settings
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.train.callbacks.curves import Curves
from mindspore_rec.train.callbacks.decision import StopAt
from mindspore_rec.train.graph.mode import prepare_process

__all__ = ["refit", "scaled_path"]

_REASON = "refit: as many passes as the best weights had"


def refit(settings: Settings, schema: Schema, rows: Rows, place: Place, fitted: Fitted) -> Fitted:
    """Train a new model with the passes and the learning rates that led to the best weights.

    Args:
        settings: settings of the YAML file.
        schema: description of the columns.
        rows: training and validation rows.
        place: a `Place`: the directories in which the training is saved.
        fitted: result of the training on training rows alone; its tables are closed.
    """
    train = settings.train
    prepare_process(train.seed)
    model = new_model(settings, schema)
    source = model.batches(training_batches(rows, schema, train))
    epoch_steps = -(-rows.count() // train.batch_size)
    steps, cuts = scaled_path(fitted.path, epoch_steps / fitted.epoch_steps)
    curves = Curves(place.events, steps)
    callbacks: list[Any] = [curves, StopAt(steps, _REASON), *schedule(train, epoch_steps, cuts)]
    callbacks += [*averages(train, model), *checkpoint_at(place, train, model, source)]
    summary = model.train(math.ceil(steps / epoch_steps), source, callbacks)
    return Fitted(model, summary, curves, [(steps, 1.0)], epoch_steps)


def scaled_path(
    path: Sequence[tuple[int, float]], scale: float
) -> tuple[int, list[tuple[int, float]]]:
    """Scale the numbers of steps; return the total number, and the cuts of the learning rate.

    A cut is a pair (step, factor by which the rate is multiplied after the step).

    Args:
        path: pairs (number of steps, factor of the learning rates), as in `EarlyStopping.path`.
        scale: steps per epoch of the new training, divided by steps per epoch of the training that
            recorded `path`.

    Example:
        >>> scaled_path([(200, 1.0), (100, 0.2)], 1.1)
        (330, [(220, 0.2)])
    """
    cuts = []
    done, last = 0, 1.0
    for steps, factor in path:
        if factor != last:
            cuts.append((round(done * scale), factor / last))
        done, last = done + steps, factor
    return max(1, round(done * scale)), cuts
