# SPDX-License-Identifier: Apache-2.0
"""Callbacks that act when a metric of the evaluations has stopped improving."""

from __future__ import annotations

import logging
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import Callback, RunContext

from mindspore_rec.checkpoint.directory import load_checkpoint, save_checkpoint
from mindspore_rec.checkpoint.team import Team
from mindspore_rec.checks import check_int, check_number, check_one_of
from mindspore_rec.optim import FTRL, CombinedOptimizer
from mindspore_rec.parallel.group import worker_group
from mindspore_rec.train.callbacks import request_stop

__all__ = ["EarlyStopping", "ReduceLROnPlateau"]

logger = logging.getLogger("mindspore_rec")

_NO_LIMIT = sys.maxsize


class _Watch(Callback):
    """Follows a metric of the evaluations, and counts those without improvement."""

    def __init__(self, monitor: str, patience: int, min_delta: float, mode: str) -> None:
        super().__init__()
        self.monitor = monitor
        self.patience = check_int("patience", patience, 1, _NO_LIMIT)
        self.min_delta = check_number("min_delta", min_delta)
        if self.min_delta < 0:
            raise ValueError(f"min_delta must be at least 0, got {min_delta}")
        self.mode = check_one_of("mode", mode, ("max", "min"))
        self.best: float | None = None
        self._seen = 0
        self._waited = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Reset the state of an earlier run."""
        self.best, self._seen, self._waited = None, 0, 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Check the last evaluation, if it is new."""
        self._look(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Check the last evaluation, if it is new."""
        self._look(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Check the last evaluation, if it is new, and warn if there has been none."""
        self._look(run_context)
        run = run_context.original_args()
        if not run.history and run.cur_step_num:
            logger.warning(
                "%s has done nothing, since the training had no evaluation: give RecModel.fit a "
                "valid_dataset, or train an EvalCallback(model, valid_dataset)",
                type(self).__name__,
            )

    def _look(self, run_context: RunContext) -> None:
        history = run_context.original_args().history
        for _, metrics in history[self._seen :]:
            self._seen += 1
            if self.monitor not in metrics:
                raise KeyError(f"monitor {self.monitor!r} is not among {sorted(metrics)}")
            if self._improves(float(metrics[self.monitor])):
                self.best, self._waited = float(metrics[self.monitor]), 0
                self._on_better(run_context)
            else:
                self._waited += 1
                self._on_no_better(run_context)

    def _improves(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self.mode == "max" else self.best - value
        return gain > self.min_delta

    def _on_better(self, run_context: RunContext) -> None:
        """Act after an evaluation that is the best so far."""

    def _on_no_better(self, run_context: RunContext) -> None:
        """Act after another evaluation."""


class EarlyStopping(_Watch):
    """Callback that ends training when a metric of the evaluations has stopped improving.

    At the end of the training, early or not, the model gets the weights of its best evaluation
    back: dense parameters, rows, optimizer state and learning rates. They are kept in a checkpoint
    in a temporary directory, which is written at each evaluation that is the best so far. After
    Ctrl-C the model keeps its last weights.

    The evaluations are those of an `EvalCallback`. A `RecCheckpoint` beside this callback keeps
    the last state, from which a training can go on, and not the best one.

    Args:
        monitor: name of the metric. Default: 'auc'.
        patience: number of successive evaluations without improvement that end the training, at
            least 1. Default: 3.
        min_delta: least change that is an improvement, at least 0. Default: 0.0.
        mode: 'max' if larger values are better, 'min' if smaller ones are. Default: 'max'.
        restore_best: whether the best weights are restored. Default: True.
        directory: existing directory in which the temporary one is made; of several hosts' workers,
            one that all of them share. Default: None, the system's directory for temporary files.

    Attributes:
        best: best value so far; None before the first evaluation.
        best_step: step of that evaluation; 0 before the first one.

    Raises:
        KeyError: the metrics do not have `monitor` (raised during training).
        OSError: the best weights cannot be written (raised during training).

    Example:
        >>> EarlyStopping("log_loss", patience=2, mode="min").best
    """

    # After a RecCheckpoint, which saves the last state at the end.
    runs_last = 2

    def __init__(
        self,
        monitor: str = "auc",
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "max",
        *,
        restore_best: bool = True,
        directory: str | Path | None = None,
    ) -> None:
        super().__init__(monitor, patience, min_delta, mode)
        if not isinstance(restore_best, bool):
            raise TypeError(f"restore_best must be a bool, got {restore_best!r}")
        if directory is not None and not Path(directory).is_dir():
            raise ValueError(f"directory must be a directory that exists, got {directory}")
        self.restore_best = restore_best
        self.best_step = 0
        self._directory = directory
        self._folder: Path | None = None
        self._best_metrics: dict[str, float] = {}

    def on_train_begin(self, run_context: RunContext) -> None:
        """Reset the state of an earlier run."""
        super().on_train_begin(run_context)
        self.best_step = 0
        self._remove()

    def on_train_end(self, run_context: RunContext) -> None:
        """Restore the best weights, unless the training was interrupted.

        Raises:
            OSError: they cannot be read.
        """
        super().on_train_end(run_context)
        run = run_context.original_args()
        if self._folder is not None and self.best_step < run.cur_step_num and not run.interrupted:
            load_checkpoint(run.train_network, self._saved(), states={})
            worker_group().barrier()  # the first worker removes what the others may still read
            run.metrics = self._best_metrics
            logger.info("restored the weights of step %d: %s", self.best_step, self.best)
        self._remove()

    def __exit__(self, *error: Any) -> None:
        """Remove the temporary directory after a training that failed."""
        self._remove()

    def _on_better(self, run_context: RunContext) -> None:
        run = run_context.original_args()
        before = None if self._folder is None else self._saved()
        self.best_step, self._best_metrics = run.cur_step_num, dict(run.history[self._seen - 1][1])
        if not self.restore_best:
            return
        if self._folder is None:
            self._folder = Path(Team(worker_group()).first(self._make_folder))
        save_checkpoint(run.train_network, self._saved())
        if before is not None and worker_group().rank == 0:
            shutil.rmtree(before, ignore_errors=True)

    def _saved(self) -> Path:
        assert self._folder is not None
        return self._folder / f"step_{self.best_step}"

    def _on_no_better(self, run_context: RunContext) -> None:
        if self._waited >= self.patience:
            request_stop(
                run_context, f"{self.monitor} no better than {self.best} for {self._waited} times"
            )

    def _make_folder(self) -> str:
        return tempfile.mkdtemp(prefix="mindspore_rec_best_", dir=self._directory)

    def _remove(self) -> None:
        if self._folder is not None and worker_group().rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None


class ReduceLROnPlateau(_Watch):
    """Callback that lowers the learning rate when a metric has stopped improving.

    All constant rates of the optimizers are multiplied by `factor`: of dense parameters and tables,
    and of each group. A checkpoint has the rates as they are then. Rates of `FTRL` stay, whose
    state is in units of 1 / rate: in a `CombinedOptimizer` only those of the others are lowered.

    The evaluations are those of an `EvalCallback`. BARS' results for click models were made with
    this, a factor of 0.1 and a patience of 1.

    Args:
        monitor: name of the metric. Default: 'auc'.
        factor: what rates are multiplied by, in (0, 1). Default: 0.1.
        patience: number of successive evaluations without improvement after which the rates are
            lowered, at least 1; then counting begins anew. Default: 1.
        min_delta: least change that is an improvement, at least 0. Default: 0.0.
        mode: 'max' if larger values are better, 'min' if smaller ones are. Default: 'max'.
        min_lr: rates are not lowered below this, at least 0. Default: 0.0.

    Attributes:
        best: best value so far; None before the first evaluation.
        reductions: steps after which the rates were lowered.

    Raises:
        KeyError: the metrics do not have `monitor` (raised during training).
        ValueError: the training has no optimizer with a constant rate that may change, or one with
            a schedule (raised when training begins).

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
        self.factor = check_number("factor", factor)
        if not 0 < self.factor < 1:
            raise ValueError(f"factor must be in (0, 1), got {factor}")
        self.min_lr = check_number("min_lr", min_lr)
        if self.min_lr < 0:
            raise ValueError(f"min_lr must be at least 0, got {min_lr}")
        self.reductions: list[int] = []

    # After EvalCallback wherever it is in the list, and before what saves the state.
    runs_last = 0.5

    def on_train_begin(self, run_context: RunContext) -> None:
        """Reset the state of an earlier run, except the rates."""
        super().on_train_begin(run_context)
        self.reductions = []
        _rates_in(run_context.original_args().train_network)

    def _on_no_better(self, run_context: RunContext) -> None:
        if self._waited < self.patience:
            return
        self._waited = 0
        run = run_context.original_args()
        for rate in _rates_in(run.train_network):
            now = float(rate.asnumpy())
            lower = max(now * self.factor, min(now, self.min_lr))
            rate.set_data(ms.Tensor(lower, rate.dtype))
            logger.info("step %d: %s %g is now %g", run.cur_step_num, rate.name, now, lower)
        self.reductions.append(run.cur_step_num)


def _rates_in(cell: nn.Cell) -> list[ms.Parameter]:
    """Return the constant rates of a training cell's optimizers, except those of FTRL.

    Raises:
        ValueError: there is none, or a schedule.
    """
    optimizers = [each for _, each in cell.cells_and_names() if isinstance(each, nn.Optimizer)]
    rates = [rate for each in optimizers for rate in _own_rates(each)]
    if not rates:
        raise ValueError(
            "ReduceLROnPlateau needs an optimizer with a constant learning_rate, other than FTRL"
        )
    return list({id(rate): rate for rate in rates}.values())


def _own_rates(optimizer: nn.Optimizer) -> Iterator[ms.Parameter]:
    if isinstance(optimizer, (CombinedOptimizer, FTRL)):  # its parts are asked themselves
        return
    if optimizer.dynamic_lr:
        raise ValueError(
            f"ReduceLROnPlateau needs a constant learning_rate, and that of the "
            f"{type(optimizer).__name__} is a schedule, which says itself when it falls: use one "
            "of the two"
        )
    yield from optimizer.learning_rate if optimizer.is_group_lr else (optimizer.learning_rate,)
