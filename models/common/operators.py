# SPDX-License-Identifier: Apache-2.0
"""Times of a training step's operators, measured by MindSpore's profiler over a few steps."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from mindspore.train import Callback, RunContext

from mindspore_rec.nn import BCEWithLogitsLoss, FusedLayer
from models.common.checks import check_least

__all__ = ["OperatorTime", "OperatorTimes"]

WINDOW = 20  # steps
_DETAILS = "cpu_op_detail_info_*.csv"
_DENSE = "dense layers"
_TABLE_OPERATORS = {
    "forward": "table lookup",
    "gradient": "table gradient",
    "update": "optimizer step",
}


@dataclass(frozen=True)
class OperatorTime:
    """Time of all operators of one kind in one cell of the network.

    Args:
        kind: MindSpore's name, such as 'MatMul', or one of this module's names. The names 'table
            lookup' and 'table gradient' stand for the operators of tables. The names 'dense layers'
            and 'loss' stand for layers and losses that run as one operator. The name 'optimizer
            step' stands for steps of a table or of all dense parameters.
        phase: 'forward', 'gradient', 'update' or 'expanded'. 'expanded' means that MindSpore made
            the operators from other operators and did not record the phase.
        cell: path of the cell in the network; '' for the network itself. The path is also '' for
            gradients of dense layers, because MindSpore does not record the cell of these
            gradients.
        calls: number of calls in a step.
        milliseconds: time of all calls in a step.
    """

    kind: str
    phase: str
    cell: str
    calls: float
    milliseconds: float


class OperatorTimes(Callback):
    """Measure operators in some steps in the middle of a run.

    The profiler slows the measured steps only a little; starting and stopping the profiler takes
    some milliseconds. Only operators on the CPU are measured, and only one profiler can run at a
    time. If the profiler cannot start, the run continues without measurements.

    Args:
        steps: number of steps of the run, at least 1.
        evaluations: number of evaluations during the run, evenly spread. No evaluation interrupts
            the measured steps. Default: 1.
        window: greatest number of steps to measure, at least 1. Default: 20.

    Attributes:
        measured: number of measured steps.
        found: an `OperatorTime` for each measured operator, slowest first.
        missing: reason why nothing was measured; '' if operators were measured.

    Example:
        >>> times = OperatorTimes(1000, evaluations=10)
        >>> times.first, times.last
        (501, 520)
    """

    def __init__(self, steps: int, evaluations: int = 1, window: int = WINDOW) -> None:
        super().__init__()
        for name, value in (("steps", steps), ("evaluations", evaluations), ("window", window)):
            check_least(name, value, 1)
        between = max(1, steps // evaluations)
        window = min(window, between)
        # the first step compiles: not that one, where there is another
        self.first = min(max(2, steps // (2 * between) * between + 1), steps)
        self.last = min(self.first + window - 1, steps)
        self.measured = 0
        self.found: list[OperatorTime] = []
        self.missing = "the run ended before"
        self._profiler: Any = None
        self._place: tempfile.TemporaryDirectory[str] | None = None

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Start the profiler in the first measured step."""
        if run_context.original_args().cur_step_num == self.first:
            self._begin()

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Stop the profiler in the last measured step."""
        if self._profiler is not None:
            self.measured += 1
            if run_context.original_args().cur_step_num == self.last:
                self._end()

    def on_train_end(self, run_context: RunContext) -> None:
        """Stop the profiler if the run ends before the last measured step."""
        if self._profiler is not None:
            self._end()

    def _begin(self) -> None:
        self._place = tempfile.TemporaryDirectory()
        try:
            handler = tensorboard_trace_handler(self._place.name, analyse_flag=False)
            self._profiler = profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler)
            self._profiler.start()
        except Exception as error:  # a page without a table is better than no training
            self._profiler, self.missing = None, f"MindSpore's profiler does not start: {error}"
            self._place.cleanup()

    def _end(self) -> None:
        profiler, place = self._profiler, self._place
        self._profiler = self._place = None
        if place is None:
            return
        with place:
            try:
                profiler.stop()
                rows = [row for path in Path(place.name).rglob(_DETAILS) for row in _rows_of(path)]
            except Exception as error:
                self.missing = f"MindSpore's profiler fails: {error}"
                return
        self.found = _grouped(rows, self.measured)
        self.missing = "" if self.found else "MindSpore's profiler has no operators of this backend"


def _rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _grouped(rows: Iterable[Mapping[str, str]], steps: int) -> list[OperatorTime]:
    """Return the times by kind, phase and cell, slowest first.

    Example:
        >>> path = "Gradients/Default/network-LossCell/network-DCN/deep-MLP/Grad_MatMul/MatMul-op"
        >>> row = {"op_type": "MatMul", "op_occurrences": "4", "op_total_time(ms)": "3.0"}
        >>> rows = [{**row, "full_op_name": f"{path}{k}"} for k in (1, 2)]
        >>> _grouped(rows, 4)
        [OperatorTime(kind='MatMul', phase='gradient', cell='deep', calls=2.0, milliseconds=1.5)]
    """
    sums: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        phase, cell = _where(row["full_op_name"])
        kind = row["op_type"]
        if kind == "Custom" and _is_dense(row["full_op_name"]):
            kind, phase = _DENSE, "forward" if cell else "gradient"
        elif kind == "Custom" and BCEWithLogitsLoss.__name__ in row["full_op_name"]:
            kind = "loss"
        elif kind == "Custom":
            kind = _TABLE_OPERATORS.get(phase, "table operator")
        total = sums.setdefault((kind, phase, cell), [0.0, 0.0])
        total[0] += float(row["op_occurrences"]) / steps
        total[1] += float(row["op_total_time(ms)"]) / steps
    made = [OperatorTime(*key, *each) for key, each in sums.items()]
    return sorted(made, key=lambda each: -each.milliseconds)


def _is_dense(name: str) -> bool:
    """Return True if a custom operator is a layer's forward or backward pass.

    Example:
        >>> _is_dense("Default/network-LossCell/network-MMoE/mixture-MMoE/Custom-op1")
        True
        >>> _is_dense("Default/network-LossCell/network-MMoE/inputs-InputLayer/Custom-op1")
        False
    """
    cells = [part.rpartition("-") for part in name.split("/")[:-1] if "-" in part]
    layers = _names_of(FusedLayer)
    # Skip the network itself: its class may have the name of a layer, such as MMoE.
    return not cells or any(kind in layers for cell, _, kind in cells if cell != "network")


def _names_of(base: type) -> set[str]:
    """Return the names of all classes derived from a class."""
    derived: list[type] = base.__subclasses__()
    return {each.__name__ for each in derived}.union(*map(_names_of, derived))


def _where(name: str) -> tuple[str, str]:
    """Return phase and cell from an operator's full name, such as
    'Default/network-LossCell/network-DCN/deep-MLP/layers-SequentialCell/0-Dense/MatMul-op2'."""
    parts = name.split("/")[:-1]
    phase = {"Gradients": "gradient", "Expand": "expanded"}.get(name.partition("/")[0], "forward")
    cells = []
    for part in parts:
        cell, dash, kind = part.partition("-")
        if cell == "optimizer" and dash:
            return "update", ""
        if dash and cell != "network" and kind != "SequentialCell":
            cells.append(cell)
    return phase, ".".join(cells)
