# SPDX-License-Identifier: Apache-2.0
"""Callbacks for training: progress, speed, evaluation, and a stop on NaN.

Each callback is a `mindspore.train.Callback` for `RecModel.train` and `RecModel.online_train`, with
finite or endless data. An evaluation stores its metrics in `run_context.original_args().metrics`,
where callbacks later in the list can read them.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from mindspore.train import Callback, RunContext

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.train.callbacks.averaging import averaged_weights
from mindspore_rec.train.callbacks.resumed import ResumedCallback, steps_before
from mindspore_rec.train.graph.loss_value import loss_value

__all__ = [
    "EvalCallback",
    "ProgressBar",
    "StopOnNaN",
    "TimeMonitor",
    "request_stop",
]

logger = logging.getLogger("mindspore_rec")

_NO_LIMIT = sys.maxsize


def request_stop(run_context: RunContext, reason: str) -> None:
    """End the training after the current step; the training summary will contain the reason.

    Args:
        run_context: the `RunContext` that the callback's methods receive.
        reason: a few words, which become `TrainSummary.stop_reason`.
    """
    run_context.original_args().stop_reason = reason
    run_context.request_stop()


class TimeMonitor(Callback):
    """Callback that logs the training speed: milliseconds per step and samples per second.

    Each logged line describes the steps since the previous line. `mindspore.train.TimeMonitor`
    divides the time of an epoch by the epoch's number of batches. An unbounded data set has no
    number of batches.

    Args:
        every_steps: steps between two lines, at least 1. Default: 100.

    Attributes:
        lines: the logged values, as tuples `(step, milliseconds per step, samples per second)`.

    Raises:
        TypeError, ValueError: `every_steps` is not an int, or is below 1.

    Example:
        >>> TimeMonitor(every_steps=10).lines
        []
    """

    def __init__(self, every_steps: int = 100) -> None:
        super().__init__()
        self.every_steps = check_int("every_steps", every_steps, 1, _NO_LIMIT)
        self.lines: list[tuple[int, float, float]] = []

    def on_train_begin(self, run_context: RunContext) -> None:
        """Start the clock."""
        self._restart(run_context.original_args())

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Log a line every `every_steps` steps."""
        run = run_context.original_args()
        steps = run.cur_step_num - self._step
        if steps < self.every_steps:
            return
        seconds = time.perf_counter() - self._time
        line = (run.cur_step_num, 1e3 * seconds / steps, (run.samples - self._samples) / seconds)
        self.lines.append(line)
        logger.info("step %d: %.2f ms a step, %.0f samples/s", *line)
        self._restart(run)

    def _restart(self, run: Any) -> None:
        self._step, self._samples = run.cur_step_num, run.samples
        self._time = time.perf_counter()


class EvalCallback(ResumedCallback):
    """Callback that evaluates the model during training and at its end.

    If a `RecCheckpoint` is among the callbacks, evaluations after a restart continue as if the
    training had not stopped. Steps are counted from the beginning of the run, including steps
    before restarts. If an evaluation was due at the step at which training stopped, the evaluation
    is made after the restart.

    Args:
        model: the RecModel that is trained; the argument `metrics` of the RecModel must be set.
        eval_dataset: the evaluation data; see `RecModel.eval`. Each evaluation reads the data
            from the start.
        every_steps: steps between two evaluations, at least 1. Default: None, which means
            evaluations only at the ends of epochs.
        at_epoch_end: if True, evaluate at the end of each epoch. For `online_train`, use False,
            because each epoch has only `sink_size` steps. Default: True if `every_steps` is None,
            otherwise False.

    Attributes:
        history: a pair `(step, metrics)` for each evaluation. The step is counted from the
            beginning of this training.

    Raises:
        TypeError, ValueError: `every_steps` is not an int, or is below 1.

    Example:
        >>> from mindspore import nn
        >>> from mindspore_rec import RecModel
        >>> from mindspore_rec.metrics import AUC
        >>> model = RecModel(nn.Dense(2, 1), nn.BCEWithLogitsLoss(), metrics={"auc": AUC()})
        >>> EvalCallback(model, [], every_steps=100).history
        []
    """

    def __init__(
        self,
        model: Any,
        eval_dataset: Any,
        every_steps: int | None = None,
        at_epoch_end: bool | None = None,
    ) -> None:
        super().__init__()
        if every_steps is not None:
            every_steps = check_int("every_steps", every_steps, 1, _NO_LIMIT)
        self.every_steps = every_steps
        self.at_epoch_end = every_steps is None if at_epoch_end is None else at_epoch_end
        self.history: list[tuple[int, dict[str, float]]] = []
        self._model = model
        self._dataset = eval_dataset
        self._evaluated = 0  # step of the last evaluation, counted over restarts
        self._goes_on = False  # whether the training is a restart

    def metric_names(self) -> list[str]:
        """Return the names of the metrics that are measured."""
        return list(self._model._metric_fns or ())

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"evaluated": self._evaluated}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        self._evaluated = int(state["evaluated"])
        self._goes_on = True

    def _reset(self) -> None:
        self.history = []
        self._evaluated, self._goes_on = 0, False

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Evaluate every `every_steps` steps."""
        run = run_context.original_args()
        step = steps_before(run) + run.cur_step_num
        if self.every_steps is not None and step % self.every_steps == 0:
            self._evaluate(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Evaluate if `at_epoch_end` is True."""
        if self.at_epoch_end:
            self._evaluate(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Evaluate at the end, unless training was interrupted or the loss is not finite."""
        run = run_context.original_args()
        if not run.interrupted and self._is_finite(run):
            self._evaluate(run_context)

    def _is_finite(self, run: Any) -> bool:
        """Return whether the last step's loss is finite; True if no step has finished."""
        return run.net_outputs is None or math.isfinite(loss_value(run.net_outputs))

    def _evaluate(self, run_context: RunContext) -> None:
        run = run_context.original_args()
        step = steps_before(run) + run.cur_step_num
        if step == self._evaluated or not (run.cur_step_num or self._goes_on):
            return
        with averaged_weights(run_context):
            metrics = self._measure(run)
        self._evaluated = step
        self.history.append((run.cur_step_num, metrics))
        run.metrics = metrics
        _note(run.history, run.cur_step_num, metrics)
        text = ", ".join(f"{name} {value:.5f}" for name, value in metrics.items())
        logger.info("step %d: %s", run.cur_step_num, text)

    def _measure(self, run: Any) -> dict[str, float]:
        measured: dict[str, float] = self._model.eval(self._dataset, progress=False)
        return measured


def _note(
    history: list[tuple[int, dict[str, float]]], step: int, metrics: dict[str, float]
) -> None:
    """Add metrics to the history.

    If the last entry has the step `step`, and the same values for all metrics that are in both the
    last entry and `metrics`, update the last entry instead.
    """
    last_step, last = history[-1] if history else (-1, {})
    if last_step == step and all(
        _same(last[name], metrics[name]) for name in last if name in metrics
    ):
        history[-1] = (step, {**last, **metrics})
    else:
        history.append((step, metrics))


def _same(one: float, other: float) -> bool:
    return bool(one == other or (one != one and other != other))


class StopOnNaN(Callback):
    """Callback that ends training when the loss of a step is NaN or infinite.

    The `stop_reason` of the training summary names the step. The last step may have written NaN to
    rows, so restore the last checkpoint.

    Example:
        >>> callback = StopOnNaN()
    """

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Check the loss."""
        run = run_context.original_args()
        loss = loss_value(run.net_outputs)
        if not math.isfinite(loss):
            logger.error("loss is %s at step %d", loss, run.cur_step_num)
            request_stop(run_context, f"loss is {loss} at step {run.cur_step_num}")


class ProgressBar(Callback):
    """Callback that shows the samples per second, the loss and the last metrics on standard error.

    For a stream, the callback also shows the lag: the number of messages in the topic that no batch
    contains yet. On a terminal, the display is a progress bar. If standard error is not a terminal,
    for example if it is a log file, the callback prints a line every `every_seconds` seconds.

    Args:
        every_seconds: if there is no terminal, seconds between two printed lines, above 0. Default:
            30.

    Raises:
        TypeError, ValueError: `every_seconds` is not a number, or is not above 0.

    Example:
        >>> progress = ProgressBar(every_seconds=60)
    """

    def __init__(self, every_seconds: float = 30.0) -> None:
        super().__init__()
        self.every_seconds = check_number("every_seconds", every_seconds)
        if self.every_seconds <= 0:
            raise ValueError(f"every_seconds must be > 0, got {every_seconds}")
        self._bar: Any = None

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the bar."""
        self._close()
        run = run_context.original_args()
        self._shown = time.perf_counter()
        self._shown_samples = 0
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(unit="step", total=_total_steps(run), dynamic_ncols=True)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Advance the bar, and update the displayed values from time to time."""
        run = run_context.original_args()
        now = time.perf_counter()
        due = 0.2 if self._bar is not None else self.every_seconds
        if self._bar is not None:
            self._bar.update(1)
        if now - self._shown >= due:
            self._show(run, now)

    def on_train_end(self, run_context: RunContext) -> None:
        """If there is a progress bar, show the last values and close the bar."""
        if self._bar is not None:
            self._show(run_context.original_args(), time.perf_counter())
        self._close()

    def __exit__(self, *error: Any) -> None:
        """Close the bar if the training has failed."""
        self._close()

    def _show(self, run: Any, now: float) -> None:
        speed = (run.samples - self._shown_samples) / max(now - self._shown, 1e-9)
        loss = loss_value(run.get("net_outputs"))
        figures = [f"{speed:,.0f} samples/s", f"loss {loss:.4f}"]
        source = run.get("train_source")  # None in MindSpore's own Model
        lag = None if source is None else source.lag
        figures += [] if lag is None else [f"lag {lag:,}"]
        figures += [f"{name} {value:.4f}" for name, value in (run.get("metrics") or {}).items()]
        if self._bar is not None:
            self._bar.set_postfix_str(", ".join(figures), refresh=True)
        else:
            total = _total_steps(run)
            of = f"/{total}" if total else ""
            print(f"step {run.cur_step_num}{of}: {', '.join(figures)}", file=sys.stderr, flush=True)
        self._shown, self._shown_samples = now, run.samples

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _total_steps(run: Any) -> int | None:
    return run.total_steps if run.get("total_steps") else None
