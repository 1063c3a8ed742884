# SPDX-License-Identifier: Apache-2.0
"""Reports on the device of each part of a model, and on the times of host operators.

`EmbeddingLookup(target="CPU")` and `HashEmbeddingLookup` run their lookups on the host. A table's
optimizer step runs on the host, where the rows are stored. The optimizer's `target = "CPU"` moves
the update of dense parameters to the host. All parts of the model that are not listed above run on
the device. `set_dense_device` moves only dense layers that run as operators; these layers then run
on a GPU.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import Callback, Model, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.device import describe
from mindspore_rec.train.nn.fused.layer import devices_of_parameters
from mindspore_rec.train.nn.static_lookup import VocabularyLookup
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["Placement", "PlacementMonitor", "PlacementReport", "placement_report"]

logger = logging.getLogger("mindspore_rec")

_STEP_NAMES = {"FTRL": "Ftrl"}
_Times = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Placement:
    """Device on which an operator, or the dense network, runs.

    Args:
        operator: name of the operator in MindSpore's logs, such as 'EmbeddingLookup' or
            'FusedSparseLazyAdam'; for the dense part of the model, 'dense network' or 'dense
            update'.
        of: name of the table or cell whose rows the operator reads or updates; for the dense
            network, the number of parameters; for the dense update, the class of the optimizer.
        place: 'host', 'device (<target>)', or a GPU set by `set_dense_device`, such as 'cuda:0
            (NVIDIA H100 80GB HBM3, cuBLASLt 13.1, ...)'.
        calls: number of calls; None if calls are not counted.
        milliseconds: total time of the calls; None if the time is not measured.
    """

    operator: str
    of: str
    place: str
    calls: int | None = None
    milliseconds: float | None = None


@dataclass(frozen=True)
class PlacementReport:
    """Placements of all operators of a model; `print` shows the placements as a table.

    Args:
        rows: sequence with one `Placement` for each operator.

    Example:
        >>> print(PlacementReport((Placement("EmbeddingLookup", "ads", "host", 2, 3.0),)))
        operator         of   place  calls  ms a call
        EmbeddingLookup  ads  host       2      1.500
    """

    rows: tuple[Placement, ...]

    def __str__(self) -> str:
        cells = [("operator", "of", "place", "calls", "ms a call")]
        for row in self.rows:
            calls = "" if row.calls is None else f"{row.calls}"
            each = ""
            if row.milliseconds is not None and row.calls:
                each = f"{row.milliseconds / row.calls:.3f}"
            cells.append((row.operator, row.of, row.place, calls, each))
        widths = [max(len(row[i]) for row in cells) for i in range(5)]
        lines = []
        for row_cells in cells:
            left = [
                text.ljust(width) for text, width in zip(row_cells[:3], widths[:3], strict=True)
            ]
            right = [
                text.rjust(width) for text, width in zip(row_cells[3:], widths[3:], strict=True)
            ]
            lines.append("  ".join(left + right).rstrip())
        return "\n".join(lines)


def placement_report(
    net_or_model: nn.Cell | Model, optimizer: nn.Optimizer | None = None
) -> PlacementReport:
    """Return the place of each part of a model, and the call counts and times of host operators.

    Args:
        net_or_model: a network, or a Model that has an optimizer.
        optimizer: the optimizer of the network, if `net_or_model` is a network. Default: None,
            which means no optimizer.

    Returns:
        The report begins with three entries per table: the lookup, the sum of gradients and the
        optimizer's step on the host. The report continues with an entry for each lookup on the
        device, entries for the dense network (one for each place that runs layers), and an entry
        for the update of the dense parameters.

    Raises:
        TypeError: `net_or_model` is neither a network nor a Model.

    Example:
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> from mindspore_rec.optim import FTRL
        >>> net = HashEmbeddingLookup(2, name="doc.placement")
        >>> report = placement_report(net, FTRL(net.trainable_params()))
        >>> [(row.operator, row.place) for row in report.rows]
        [('EmbeddingLookup', 'host'), ('SparseGradient', 'host'), ('FusedSparseFtrl', 'host')]
    """
    net, optimizer = _network_and_optimizer(net_or_model, optimizer)
    return _report(net, optimizer, {})


def _network_and_optimizer(
    net_or_model: Any, optimizer: nn.Optimizer | None
) -> tuple[nn.Cell, nn.Optimizer | None]:
    if isinstance(net_or_model, Model):
        # MindSpore's Model has no public attributes for its network and optimizer.
        return net_or_model._network, optimizer or net_or_model._optimizer
    if isinstance(net_or_model, nn.Cell):
        return net_or_model, optimizer
    raise TypeError(f"net_or_model must be a Cell or a Model, got {type(net_or_model).__name__}")


def _report(
    net: nn.Cell, optimizer: nn.Optimizer | None, before: Mapping[str, _Times]
) -> PlacementReport:
    device = f"device ({ms.get_context('device_target')})"
    rows = [
        row
        for table in tables_of(net)
        for row in _table_rows(table, optimizer, before.get(table.name, {}))
    ]
    for name, cell in net.cells_and_names():
        if isinstance(cell, VocabularyLookup) and cell.target == "DEVICE":
            rows.append(Placement("EmbeddingLookup", name, device))
    dense = [p for p in net.get_parameters() if not hasattr(p, "mindspore_rec_table")]
    layers = devices_of_parameters(net)
    counts: dict[str, int] = {}
    for p in dense:
        layer = layers.get(id(p), "cpu")  # default: where MindSpore's layers run
        place = device if layer == "cpu" else describe(layer)
        counts[place] = counts.get(place, 0) + math.prod(p.shape)
    for place, count in sorted(counts.items()):
        rows.append(Placement("dense network", f"{count:,} parameters", place))
    if dense and optimizer is not None:
        where = "host" if optimizer.target == "CPU" and device != "device (CPU)" else device
        rows.append(Placement("dense update", type(optimizer).__name__, where))
    return PlacementReport(tuple(rows))


def _table_rows(table: Any, optimizer: Any, before: _Times) -> list[Placement]:
    named = (
        ("lookup", "EmbeddingLookup"),
        ("accumulate", "SparseGradient"),
        ("step", _step_name(table, optimizer)),
    )
    times = table.op_times()
    rows = []
    for kind, operator in named:
        if operator is None:
            continue
        calls, nanoseconds = times[kind]
        calls_before, nanoseconds_before = before.get(kind, (0, 0))
        spent = (nanoseconds - nanoseconds_before) / 1e6
        rows.append(Placement(operator, table.name, "host", calls - calls_before, spent))
    return rows


def _step_name(table: Any, optimizer: Any) -> str | None:
    if optimizer is None:
        return None
    # `cells_and_names` lists a combined optimizer before its parts. If several cells bind the
    # table, the last of these cells updates the table.
    name = None
    for _, cell in optimizer.cells_and_names():
        if table.id in getattr(cell, "table_bindings", {}):
            kind = type(cell).__name__
            name = "FusedSparse" + _STEP_NAMES.get(kind, kind)
    return name


class PlacementMonitor(Callback):
    """Callback that logs the place of each part of a model, and recent times of host operators.

    Args:
        every_steps: steps between two logs, at least 1. Default: 100.

    Attributes:
        reports: a pair `(step, PlacementReport)` for each logged report. A report contains the
            calls and times since the previous log.

    Example:
        >>> PlacementMonitor(every_steps=10).reports
        []
    """

    def __init__(self, every_steps: int = 100) -> None:
        super().__init__()
        self.every_steps = check_int("every_steps", every_steps, 1, 1 << 62)
        self.reports: list[tuple[int, PlacementReport]] = []
        self._before: dict[str, _Times] = {}

    def on_train_begin(self, run_context: RunContext) -> None:
        """Begin the measurement for the first report."""
        self._restart(run_context.original_args().network)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Log a report every `every_steps` steps."""
        run = run_context.original_args()
        if run.cur_step_num % self.every_steps:
            return
        report = _report(run.network, run.optimizer, self._before)
        self.reports.append((run.cur_step_num, report))
        logger.info("step %d, the last %d steps:\n%s", run.cur_step_num, self.every_steps, report)
        self._restart(run.network)

    def _restart(self, net: nn.Cell) -> None:
        self._before = {table.name: table.op_times() for table in tables_of(net)}
