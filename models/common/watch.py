# SPDX-License-Identifier: Apache-2.0
"""Callbacks of a training run: evaluations, records for the report, times of operators."""

from __future__ import annotations

from mindspore.train import Callback

from mindspore_rec import EvalCallback, RecModel
from mindspore_rec.train import CountFirstEpoch, StopOnNaN
from models.common.data import Data
from models.common.operators import OperatorTimes
from models.common.report import Recorder
from models.common.training import TrainConfig, step_count

__all__ = ["Watch"]


class Watch:
    """Callbacks of a run.

    Args:
        model: the model in training.
        data: the data that the model trains on.
        config: settings for the length of the run.
        operators: whether to measure operators in some steps.

    Attributes:
        recorder: the `Recorder` of loss, rows and hit rates.
        operators: times of the operators; None if they are not measured.
        callbacks: all callbacks to pass to `RecModel.train`.
    """

    def __init__(self, model: RecModel, data: Data, config: TrainConfig, operators: bool) -> None:
        steps = step_count(config, data)
        every = max(1, steps // config.evaluations)
        self.recorder = Recorder(model, steps)
        self.operators = OperatorTimes(steps, config.evaluations) if operators else None
        evaluation = EvalCallback(model, data.test, every, at_epoch_end=False)
        # No evaluation runs during the measured steps.
        first: list[Callback] = [] if self.operators is None else [self.operators]
        if config.admission_counts == "first_epoch":
            first.append(CountFirstEpoch(steps // config.epochs))
        self.callbacks = [*first, evaluation, StopOnNaN(), self.recorder]
