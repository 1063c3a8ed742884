# SPDX-License-Identifier: Apache-2.0
"""Curves: callback that records loss, speed and metrics, in memory and for TensorBoard."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from mindspore.train import RunContext

from mindspore_rec.train.callbacks.resumed import ResumedCallback, steps_before
from mindspore_rec.train.graph.loss_value import loss_value

__all__ = ["Curves"]

_MOST_POINTS = 400


class Curves(ResumedCallback):
    """Callback that records at most 400 points of loss and speed, and metrics of evaluations.

    When 400 points are recorded, neighbouring points are merged in pairs. After each merge, a new
    point covers twice as many steps as before. If a `RecCheckpoint` is among the callbacks, steps
    before a restart are counted too.

    Args:
        log_dir: directory for TensorBoard. Needs tensorboardX. Default: None, which means that no
            TensorBoard file is written.
        steps: number of steps of the training; the progress bar needs this number to show the
            remaining time if the data have no known length. Default: None, which means that the
            number is unknown.

    Attributes:
        points: tuples `(step, mean loss, samples per second)`. Loss and speed are computed over the
            steps since the previous point.
        evaluations: `(step, metrics)` of each evaluation.
        steps: number of steps, including steps before restarts.
        samples: number of rows, including rows before restarts.

    Example:
        >>> Curves().points
        []
    """

    runs_last = 0.7  # after the callbacks that evaluate, before a RecCheckpoint

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, steps: int | None = None
    ) -> None:
        super().__init__()
        self._steps = steps
        self._log_dir = None if log_dir is None else str(log_dir)
        self._writer: Any = None
        self._reset()

    def _reset(self) -> None:
        self.points: list[tuple[int, float, float]] = []
        self.evaluations: list[tuple[int, dict[str, float]]] = []
        self.steps, self.samples = 0, 0
        self._samples_before = 0  # number of rows before a restart
        self._every = 1
        self._losses: list[float] = []
        self._evaluated = 0
        self._samples, self._time = 0, time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "every": self._every,
            "steps": self.steps,
            "samples": self.samples,
            "points": [list(each) for each in self.points],
            "evaluations": [[step, metrics] for step, metrics in self.evaluations],
        }

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        self._every = int(state["every"])
        self.steps = int(state.get("steps", 0))
        self.samples = self._samples_before = int(state["samples"])
        self.points = [(int(step), loss, speed) for step, loss, speed in state["points"]]
        self.evaluations = [(int(step), dict(metrics)) for step, metrics in state["evaluations"]]

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the TensorBoard file, and start to measure time."""
        if self._log_dir is not None:
            from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

            self._writer = SummaryWriter(self._log_dir)
        self._samples, self._time = 0, time.perf_counter()
        run = run_context.original_args()
        if self._steps is not None and not run.get("total_steps"):
            run.total_steps = max(0, self._steps - steps_before(run))

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Record the loss of the step, and the metrics if there was an evaluation."""
        run = run_context.original_args()
        self.steps = steps_before(run) + run.cur_step_num
        self.samples = self._samples_before + run.samples
        self._losses.append(loss_value(run.net_outputs))
        if len(self._losses) >= self._every:
            self._add_point(run)
        self._take_evaluations(run)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Record the metrics of an evaluation at the end of the epoch."""
        self._take_evaluations(run_context.original_args())

    def on_train_end(self, run_context: RunContext) -> None:
        """Record the last metrics, and close the TensorBoard file."""
        self._take_evaluations(run_context.original_args())
        self._close()

    def __exit__(self, *error: Any) -> None:
        """If the training has failed, close the TensorBoard file."""
        self._close()

    def _add_point(self, run: Any) -> None:
        now = time.perf_counter()
        step = steps_before(run) + run.cur_step_num
        loss = sum(self._losses) / len(self._losses)
        speed = (run.samples - self._samples) / max(now - self._time, 1e-9)
        self.points.append((step, loss, speed))
        self._losses, self._samples, self._time = [], run.samples, now
        self._write(step, {"loss": loss, "samples_per_second": speed})
        if len(self.points) >= _MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [
                (end, (one + two) / 2, (slow + fast) / 2)
                for (_, one, slow), (end, two, fast) in pairs
            ]
            self._every *= 2

    def _take_evaluations(self, run: Any) -> None:
        for step, metrics in run.history[self._evaluated :]:
            self.evaluations.append((steps_before(run) + step, dict(metrics)))
            self._write(*self.evaluations[-1])
        self._evaluated = len(run.history)

    def _write(self, step: int, figures: Mapping[str, float]) -> None:
        if self._writer is not None:
            for name, value in figures.items():
                if math.isnan(value):  # for example, if all rows have one class
                    continue
                self._writer.add_scalar(name, value, step)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
