# SPDX-License-Identifier: Apache-2.0
"""Callbacks that act when an evaluation metric has stopped improving."""

from __future__ import annotations

import logging
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mindspore.train import RunContext

from mindspore_rec._native import make_directories
from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.run.team import Team
from mindspore_rec.train.callbacks.progress import request_stop
from mindspore_rec.train.callbacks.rates import constant_rates, set_rate
from mindspore_rec.train.callbacks.resumed import ResumedCallback, steps_before
from mindspore_rec.train.checkpoint.directory import load_checkpoint, save_checkpoint

__all__ = ["EarlyStopping", "ReduceLROnPlateau"]

logger = logging.getLogger("mindspore_rec")

_NO_LIMIT = sys.maxsize
_STEP = "step_"  # prefix of the names of saved weights


class _Watch(ResumedCallback):
    """Watches an evaluation metric and counts evaluations without improvement.

    Several evaluations after the same step count as one evaluation. Evaluations that do not measure
    the metric do not count.
    """

    def __init__(self, monitor: str, patience: int, min_delta: float, mode: str) -> None:
        super().__init__()
        self.monitor = monitor
        self.patience = check_int("patience", patience, 1, _NO_LIMIT)
        self.min_delta = check_number("min_delta", min_delta)
        if self.min_delta < 0:
            raise ValueError(f"min_delta must be at least 0, got {min_delta}")
        self.mode = check_one_of("mode", mode, ("max", "min"))
        self.best: float | None = None
        self._seen = 0  # number of history entries up to the last counted entry
        self._counted = 0  # step of the last counted entry
        self._waited = 0

    @property
    def state_name(self) -> str:
        """Name of the state in checkpoints: class name, monitor and mode, separated by spaces."""
        return f"{type(self).__name__} {self.monitor} {self.mode}"

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"best": self.best, "waited": self._waited, "counted": self._counted}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        best = state["best"]
        self.best = None if best is None else float(best)
        self._waited, self._counted = int(state["waited"]), int(state["counted"])

    def _reset(self) -> None:
        self.best, self._seen, self._counted, self._waited = None, 0, 0, 0

    def catch_up(self, run_context: RunContext) -> None:
        """Check the last evaluation, unless this callback has already checked it."""
        self._look(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Check the last evaluation, unless this callback has already checked it."""
        self._look(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Check the last evaluation, unless this callback has already checked it."""
        self._look(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Check the last evaluation if it was not checked yet; warn if there was no evaluation."""
        self._look(run_context)
        run = run_context.original_args()
        if not run.history and run.cur_step_num:
            logger.warning(
                "%s has done nothing, since the training had no evaluation: give RecModel.fit a "
                "valid_dataset, or train an EvalCallback(model, valid_dataset)",
                type(self).__name__,
            )

    def _look(self, run_context: RunContext) -> None:
        run = run_context.original_args()
        for number, (step, metrics) in enumerate(run.history[self._seen :], self._seen + 1):
            if self.monitor not in metrics:
                self._check_monitor(run, metrics)
                continue
            self._seen = number
            if self._counted != steps_before(run) + step:
                self._counted = steps_before(run) + step
                self._count(run_context, metrics)

    def _count(self, run_context: RunContext, metrics: dict[str, float]) -> None:
        value = float(metrics[self.monitor])
        if self._improves(value):
            self.best, self._waited = value, 0
            self._on_better(run_context, metrics)
        else:
            self._waited += 1
            self._on_no_better(run_context)

    def _check_monitor(self, run: Any, metrics: dict[str, float]) -> None:
        """Raise KeyError if no evaluation in this training can measure the metric `monitor`."""
        measured = set(metrics)
        for each in run.list_callback:
            names = getattr(each, "metric_names", None)
            measured.update(() if names is None else names())
        if self.monitor not in measured:
            raise KeyError(
                f"monitor {self.monitor!r} is not among {sorted(measured)}, the metrics of the "
                "evaluations: name one of these, or give RecModel a metric of that name"
            )

    def _improves(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self.mode == "max" else self.best - value
        return gain > self.min_delta

    def _on_better(self, run_context: RunContext, metrics: dict[str, float]) -> None:
        """Called after an evaluation that improves the metric."""

    def _on_no_better(self, run_context: RunContext) -> None:
        """Called after an evaluation that does not improve the metric."""


class EarlyStopping(_Watch):
    """Callback that ends training when an evaluation metric has stopped improving.

    When the training ends, even without an early stop, the callback restores the state of the best
    evaluation. The restored state includes dense parameters, rows, optimizer state and learning
    rates. The best weights are saved as a checkpoint in a temporary directory. Each better
    evaluation replaces the checkpoint of the best weights. After Ctrl-C, the model keeps its last
    weights.

    Evaluations are made by `RecModel.fit` and by an `EvalCallback`. Several evaluations after the
    same step count as one evaluation. Evaluations that do not measure `monitor` do not count.

    If a `RecCheckpoint` is among the callbacks, it saves the last state of the model and the state
    of this callback. With a `RecCheckpoint` among the callbacks, the best weights are saved in the
    folder `best` of the checkpoint directory, and remain there after the training. With a
    `RecCheckpoint`, a training that was killed and restarted has the same result as an
    uninterrupted training. If a training that has stopped early is started again, the training does
    no step and restores the best weights.

    If `cuts` is above 0, the training does not end but goes back to the best weights and continues
    with lower learning rates, at most `cuts` times. The rates are lowered as in
    `ReduceLROnPlateau`. The optimizers' rates must be constant.

    Args:
        monitor: name of the metric. Default: 'auc'.
        patience: number of successive evaluations without improvement before training ends, at
            least 1. Default: 3.
        min_delta: minimum improvement, at least 0. A value counts as an improvement only if the
            value is better than the best value by more than `min_delta`. Default: 0.0.
        mode: 'max' if larger values are better, 'min' if smaller values are better. Default: 'max'.
        restore_best: whether the best weights are restored at the end. Default: True.
        directory: existing directory in which the temporary directory is created. If workers run on
            several hosts, all hosts must share the directory. If a `RecCheckpoint` is among the
            callbacks, `directory` is not used. Default: None, which means the system's directory
            for temporary files.
        cuts: maximum number of times that the learning rates are lowered. At a cut, the state of
            the best evaluation is restored, the learning rates are multiplied by `factor`, and the
            training continues. After each cut, evaluations without improvement are counted from 0
            again. Needs `restore_best`. Default: 0.
        factor: number in (0, 1) by which each cut multiplies the learning rates. Default: 0.2.

    Attributes:
        best: best value so far; None if there was no evaluation yet.
        best_step: step of the best evaluation, counted from the beginning of the run; 0 if there
            was no evaluation yet.
        path: list of pairs `(steps, factor)`, in the order of training. For each pair, the training
            made `steps` steps at `factor` times the initial learning rates, to reach the best
            weights. Steps that a cut has undone are not counted.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, `directory` does
            not exist, or `cuts` is set although `restore_best` is False.
        KeyError: evaluations do not measure `monitor` (raised during training).
        ValueError: the training is a restart, and the best weights that were saved before the
            restart are missing. A ValueError is also raised if `cuts` is set and the optimizers
            have no constant rate. Both ValueErrors are raised when training begins.
        OSError: the best weights cannot be written (raised during training).

    Example:
        >>> EarlyStopping("log_loss", patience=2, mode="min").best
    """

    # A RecCheckpoint must be called before this callback: first the RecCheckpoint saves the last
    # state, and then this callback restores the best weights.
    runs_last = 2

    path: list[tuple[int, float]]

    def __init__(
        self,
        monitor: str = "auc",
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "max",
        *,
        restore_best: bool = True,
        directory: str | Path | None = None,
        cuts: int = 0,
        factor: float = 0.2,
    ) -> None:
        super().__init__(monitor, patience, min_delta, mode)
        if not isinstance(restore_best, bool):
            raise TypeError(f"restore_best must be a bool, got {restore_best!r}")
        if directory is not None and not Path(directory).is_dir():
            raise ValueError(f"directory must be a directory that exists, got {directory}")
        self.cuts = check_int("cuts", cuts, 0, _NO_LIMIT)
        self.factor = _check_factor(factor)
        if self.cuts and not restore_best:
            raise ValueError("restore_best must be True with cuts, which go back to the best state")
        self.restore_best = restore_best
        self.best_step = 0
        self._forget_path()
        self._directory = directory
        self._folder: Path | None = None
        self._newest_step: Callable[[], int] | None = None  # function of the RecCheckpoint
        self._best_metrics: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        best = {"best_step": self.best_step, "best_metrics": dict(self._best_metrics)}
        path = {"path": [list(each) for each in self.path], "since": self._since}
        cuts = {"cuts": self._cuts, "cuts_at_best": self._cuts_at_best}
        return {**super().state_dict(), **best, **path, **cuts}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        step, metrics = int(state["best_step"]), dict(state["best_metrics"])
        path = [(int(steps), float(factor)) for steps, factor in state.get("path", [])]
        since = int(state.get("since", step))
        cuts = [int(state.get(name, 0)) for name in ("cuts", "cuts_at_best")]
        super().go_on(state)
        self.best_step, self._best_metrics = step, metrics
        self.path, self._since, (self._cuts, self._cuts_at_best) = path, since, cuts

    def _reset(self) -> None:
        super()._reset()
        self.best_step, self._best_metrics = 0, {}
        self._forget_path()
        self._remove()

    def _forget_path(self) -> None:
        self.path = []
        self._since = 0  # step at which the best weights were reached or restored
        self._cuts = self._cuts_at_best = 0  # number of cuts, now and at the best evaluation

    def keep_beside(self, folder: Path, newest_step: Callable[[], int]) -> None:
        """Save the best weights of the next training in a folder that remains after the training.

        Args:
            folder: folder for the weights; it is created if it does not exist.
            newest_step: function that returns the step of the newest checkpoint of the training.
        """
        self._folder, self._newest_step = folder, newest_step

    def on_train_begin(self, run_context: RunContext) -> None:
        """If the training had stopped early before a restart, stop immediately.

        Raises:
            ValueError: the weights of the best evaluation are missing, or the optimizers have no
                constant rate.
        """
        if self.cuts:
            constant_rates(run_context.original_args().train_network, type(self).__name__)
        if self.best is not None and self.restore_best and not self._has_best():
            raise ValueError(
                f"EarlyStopping needs the weights of step {self.best_step}, the best before the "
                f"restart, and they are not in {self._folder or 'a RecCheckpoint beside it'}: an "
                "earlier step than the newest was restored, or they were removed. "
                "restore_best=False goes on without them"
            )
        if self._waited:
            self._on_no_better(run_context)

    def _has_best(self) -> bool:
        if self._folder is None:
            return False
        return bool(Team(worker_group()).first(lambda: self._saved().is_dir()))

    def on_train_end(self, run_context: RunContext) -> None:
        """Restore the best weights, unless the training was interrupted.

        Raises:
            OSError: the best weights cannot be read.
        """
        super().on_train_end(run_context)
        run = run_context.original_args()
        step = steps_before(run) + run.cur_step_num
        has_best = self.best is not None and self.restore_best
        if has_best and self.best_step < step and not run.interrupted:
            load_checkpoint(run.train_network, self._saved(), states={})
            worker_group().barrier()  # the first worker removes files that others may still read
            run.metrics = self._best_metrics
            logger.info("restored the weights of step %d: %s", self.best_step, self.best)
        self._remove()

    def __exit__(self, *error: Any) -> None:
        """If the training has failed, remove the temporary directory."""
        self._remove()

    def _on_better(self, run_context: RunContext, metrics: dict[str, float]) -> None:
        run = run_context.original_args()
        self.best_step, self._best_metrics = steps_before(run) + run.cur_step_num, dict(metrics)
        self._extend_path()
        if not self.restore_best:
            return
        team = Team(worker_group())
        if self._folder is None:
            self._folder = Path(team.first(self._make_folder))
        team.first(self._make_room)
        save_checkpoint(run.train_network, self._saved())
        team.first(self._remove_old)

    def _extend_path(self) -> None:
        steps, factor = self.best_step - self._since, self.factor**self._cuts
        if self.path and self.path[-1][1] == factor:
            steps += self.path.pop()[0]
        self.path.append((steps, factor))
        self._since, self._cuts_at_best = self.best_step, self._cuts

    def _saved(self) -> Path:
        assert self._folder is not None
        return self._folder / f"{_STEP}{self.best_step}"

    def _make_room(self) -> None:
        """Make the directory; remove weights of this step that an earlier process has left."""
        assert self._folder is not None
        make_directories(self._folder)
        if self._saved().exists():
            shutil.rmtree(self._saved())

    def _remove_old(self) -> None:
        """Remove saved weights that neither this process nor the newest checkpoint needs.

        A checkpoint at the step of the best evaluation may be older than the evaluation. A restart
        from this checkpoint needs the best weights of an earlier step.
        """
        assert self._folder is not None
        numbers = [path.name.removeprefix(_STEP) for path in self._folder.glob(f"{_STEP}*")]
        steps = sorted(int(each) for each in numbers if each.isdecimal())
        needed = self.best_step
        if self._newest_step is not None:
            newest = self._newest_step()
            needed = max((step for step in steps if step < newest), default=0)
        for step in steps:
            if step < needed or step > self.best_step:
                shutil.rmtree(self._folder / f"{_STEP}{step}", ignore_errors=True)

    def _on_no_better(self, run_context: RunContext) -> None:
        if self._waited < self.patience:
            return
        if self._cuts < self.cuts and self.best is not None:
            self._cut(run_context)
            return
        request_stop(
            run_context, f"{self.monitor} no better than {self.best} for {self._waited} times"
        )

    def _cut(self, run_context: RunContext) -> None:
        """Go back to the best weights, and lower the rates."""
        run = run_context.original_args()
        self._waited = 0
        self._cuts += 1
        self._since = steps_before(run) + run.cur_step_num
        load_checkpoint(run.train_network, self._saved(), states={})
        worker_group().barrier()  # the first worker removes files that others may still read
        for rate in constant_rates(run.train_network, type(self).__name__):
            lower = float(rate.asnumpy()) * self.factor ** (self._cuts - self._cuts_at_best)
            set_rate(rate, lower)
            logger.info("step %d: %s is now %g", self._since, rate.name, lower)

    def _make_folder(self) -> str:
        return tempfile.mkdtemp(prefix="mindspore_rec_best_", dir=self._directory)

    def _remove(self) -> None:
        """Remove the temporary directory, but not a folder in the directory of a RecCheckpoint."""
        folder = None if self._newest_step is not None else self._folder
        if folder is not None and worker_group().rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        self._folder = self._newest_step = None


class ReduceLROnPlateau(_Watch):
    """Callback that lowers the learning rate when an evaluation metric has stopped improving.

    All constant learning rates of the optimizers are multiplied by `factor`. The rates of dense
    parameters, of tables and of all parameter groups are lowered. Checkpoints contain the lowered
    rates. Rates of `FTRL` are not lowered, because the state of `FTRL` is in units of 1 / rate. In
    a `CombinedOptimizer` with `FTRL`, only the rates of the other optimizers are lowered.

    Evaluations are made by `RecModel.fit` and by an `EvalCallback`. Several evaluations after the
    same step count as one evaluation. Evaluations that do not measure `monitor` do not count. If a
    `RecCheckpoint` is among the callbacks, the checkpoints contain this callback's state. With the
    saved state, a restarted training lowers the rates at the same steps as an uninterrupted
    training. The benchmark BARS trained its click models with this method, with a factor of 0.1 and
    a patience of 1.

    Args:
        monitor: name of the metric. Default: 'auc'.
        factor: number in (0, 1) by which rates are multiplied. Default: 0.1.
        patience: number of successive evaluations without improvement before the rates are lowered,
            at least 1. After the rates were lowered, evaluations without improvement are counted
            from 0 again. Default: 1.
        min_delta: minimum improvement, at least 0. A value counts as an improvement only if the
            value is better than the best value by more than `min_delta`. Default: 0.0.
        mode: 'max' if larger values are better, 'min' if smaller values are better. Default: 'max'.
        min_lr: lower limit of the rates, at least 0. Default: 0.0.

    Attributes:
        best: best value so far; None if there was no evaluation yet.
        reductions: steps after which the rates were lowered, counted from the beginning of the run.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        KeyError: evaluations do not measure `monitor` (raised during training).
        ValueError: no optimizer of the training has a constant rate that may be lowered, or an
            optimizer has a schedule (raised when training begins).

    Example:
        >>> ReduceLROnPlateau("log_loss", factor=0.5, mode="min").reductions
        []
    """

    def __init__(
        self,
        monitor: str = "auc",
        factor: float = 0.1,
        patience: int = 1,
        min_delta: float = 0.0,
        mode: str = "max",
        *,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, patience, min_delta, mode)
        self.factor = _check_factor(factor)
        self.min_lr = check_number("min_lr", min_lr)
        if self.min_lr < 0:
            raise ValueError(f"min_lr must be at least 0, got {min_lr}")
        self.reductions: list[int] = []

    # This callback is called after an EvalCallback and before a RecCheckpoint. The order in the
    # list of callbacks does not matter.
    runs_last = 0.5

    def on_train_begin(self, run_context: RunContext) -> None:
        """Check that the optimizers have a rate that the callback can lower."""
        constant_rates(run_context.original_args().train_network, type(self).__name__)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values, without the rates, which are optimizer parameters."""
        return {**super().state_dict(), "reductions": list(self.reductions)}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        reductions = [int(each) for each in state["reductions"]]
        super().go_on(state)
        self.reductions = reductions

    def _reset(self) -> None:
        super()._reset()
        self.reductions = []

    def _on_no_better(self, run_context: RunContext) -> None:
        if self._waited < self.patience:
            return
        self._waited = 0
        run = run_context.original_args()
        for rate in constant_rates(run.train_network, type(self).__name__):
            now = float(rate.asnumpy())
            lower = max(now * self.factor, min(now, self.min_lr))
            set_rate(rate, lower)
            logger.info("step %d: %s %g is now %g", run.cur_step_num, rate.name, now, lower)
        self.reductions.append(steps_before(run) + run.cur_step_num)


def _check_factor(factor: float) -> float:
    checked = check_number("factor", factor)
    if not 0 < checked < 1:
        raise ValueError(f"factor must be in (0, 1), got {factor}")
    return checked
