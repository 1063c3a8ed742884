# SPDX-License-Identifier: Apache-2.0
"""Report of a training run as one HTML page: curves, tables, calibration, operators."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore.train import Callback, RunContext

from mindspore_rec import RecModel, tables_of
from mindspore_rec.metrics import ReliabilityCurve
from models.common.operators import OperatorTimes
from models.common.pictures import bars, lines

__all__ = ["Recorder", "write_report"]

POINTS = 200  # of a curve, about
SLOWEST = 15  # operators in the table
TIERS = {"host": "host_hits", "remote": "remote_hits", "ssd": "ssd_hits"}
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:15px sans-serif;margin:2em auto;max-width:60em}}
td,th{{padding:.2em .8em;text-align:right}}th:first-child,td:first-child{{text-align:left}}
.wide{{overflow-x:auto}}svg{{max-width:100%;height:auto}}pre{{background:#f4f4f4;padding:1em;overflow:auto}}</style>
</head><body><h1>{title}</h1>
"""


@dataclass(frozen=True)
class _Point:
    step: int
    loss: float
    rows: dict[str, int]
    host_rows: dict[str, int]
    megabytes: dict[str, float]
    hit_rate: dict[str, float]


class Recorder(Callback):
    """Callback that records the loss, table sizes and tier hit rates at up to 400 steps of a run.

    Args:
        model: the model to record.
        steps: number of steps of the run, at least 1.

    Attributes:
        every: number of steps between two recorded points.
        points: recorded points.

    Example:
        >>> from mindspore import nn
        >>> Recorder(RecModel(nn.Dense(2, 1)), 1000).every
        5
    """

    def __init__(self, model: RecModel, steps: int) -> None:
        super().__init__()
        self.every = max(1, steps // POINTS)
        self.points: list[_Point] = []
        self._tables = tables_of(model.train_network)
        self._losses: list[float] = []
        self._before: dict[str, dict[str, int]] = {}

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Store the loss of a step; every `self.every` steps, add a point to the report."""
        run = run_context.original_args()
        self._losses.append(float(run.net_outputs.asnumpy()))
        if run.cur_step_num % self.every:
            return
        stats = {table.name: table.stats() for table in self._tables}
        tiered = {name: each for name, each in stats.items() if "host_rows" in each}
        self.points.append(
            _Point(
                run.cur_step_num,
                sum(self._losses) / len(self._losses),
                {name: each["rows"] for name, each in stats.items()},
                {name: each["host_rows"] for name, each in tiered.items()},
                {name: _megabytes(each) for name, each in stats.items()},
                {
                    f"{name}, {tier}": rate
                    for name, each in tiered.items()
                    for tier, rate in self._rates(name, each).items()
                },
            )
        )
        self._losses = []

    def _rates(self, name: str, stats: dict[str, Any]) -> dict[str, float]:
        """Return each tier's share of the keys that were looked up since the last point.

        A row that is read ahead counts for the lower tier, and the later lookup of the row counts
        for host memory. If many rows are read ahead, the share of a lower tier may exceed 1.
        """
        keys = {tier: stats[key] for tier, key in TIERS.items() if key in stats}
        now = {"": stats["looked_up_keys"], **keys}
        before = self._before.get(name, {})
        self._before[name] = now
        new = {tier: count - before.get(tier, 0) for tier, count in now.items()}
        looked_up = new.pop("")
        return {tier: count / looked_up for tier, count in new.items()} if looked_up else {}


def _megabytes(stats: dict[str, Any]) -> float:
    """Return the size of a table's rows and index, in megabytes."""
    return (stats["row_bytes"] + stats["index_bytes"]) / 1e6


def write_report(
    path: Path,
    title: str,
    figures: dict[str, Any],
    points: list[_Point],
    curves: Mapping[str, ReliabilityCurve],
    operators: OperatorTimes | None = None,
) -> None:
    """Write the page. Needs matplotlib: the extra `plot`.

    Args:
        path: HTML file to write.
        title: title of the page.
        figures: figures of the run, in the form that `--json` writes.
        points: the points that a `Recorder` has recorded.
        curves: maps each task to predicted and observed rates; empty if the run was interrupted.
        operators: times of the operators. Default: None, which means that the page shows no times.

    Raises:
        ValueError: matplotlib is not installed.
    """
    pictures = [lines("Loss", "step", {"training": [(p.step, p.loss) for p in points]})]
    history = figures["history"]
    if history:
        aucs = {
            name.removeprefix("auc.").replace("auc", "test rows"): [
                (each["step"], each[name]) for each in history
            ]
            for name in history[0]
            if name.split(".")[0] == "auc"
        }
        pictures.append(lines("AUC", "step", aucs))
    pictures.append(lines("Rows of tables", "step", _by_table(points, "rows")))
    pictures.append(lines("Memory of tables, MB", "step", _by_table(points, "megabytes")))
    if any(p.host_rows for p in points):
        host_rows = _by_table(points, "host_rows")
        pictures.append(lines("Rows of tables in host memory", "step", host_rows))
        rates = _by_table(points, "hit_rate")
        pictures.append(lines("Keys found in a tier, by keys looked up", "step", rates))
    if curves:
        pictures.append(_calibration(curves))
    if operators is not None:
        pictures.append(_slowest(operators))
    numbers = figures.get("evaluation") or figures["metrics"]
    rows = "".join(f"<tr><td>{k}</td><td>{v:.5f}</td></tr>" for k, v in numbers.items())
    config = html.escape(json.dumps(figures["config"], indent=2))
    text = _HEAD.format(title=html.escape(title))
    text += f"<table>{rows}</table>\n" + "\n".join(pictures)
    text += f"\n<h2>Configuration</h2><pre>{config}</pre></body></html>\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _by_table(points: list[_Point], what: str) -> dict[str, list[tuple[float, float]]]:
    series: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        for name, value in getattr(point, what).items():
            series.setdefault(name, []).append((point.step, value))
    return series


def _calibration(curves: Mapping[str, ReliabilityCurve]) -> str:
    shown = {}
    for task, curve in curves.items():
        full = curve.rows > 0
        observed = list(zip(curve.predicted[full], curve.observed[full], strict=True))
        shown[f"observed {task}".strip()] = observed
    ends = sorted(x for points in shown.values() for x, _ in points)
    shown["calibrated"] = [(x, x) for x in ends]
    return lines("Calibration: observed rate", "predicted rate", shown)


def _slowest(operators: OperatorTimes) -> str:
    """Return the slowest operators as a picture and a table."""
    head = "<h2>Slowest operators</h2>"
    if not operators.found:
        return f"{head}<p>Not measured: {html.escape(operators.missing)}.</p>"
    total = sum(each.milliseconds for each in operators.found)
    shown = operators.found[:SLOWEST]
    names = [" ".join(filter(None, (o.kind, o.phase, o.cell))) for o in shown]
    cells = "".join(
        f"<tr><td>{html.escape(o.kind)}</td><td>{o.phase}</td><td>{html.escape(o.cell)}</td>"
        f"<td>{o.calls:.1f}</td><td>{o.milliseconds:.3f}</td>"
        f"<td>{o.milliseconds / total:.1%}</td></tr>"
        for o in shown
    )
    picture = bars("ms a step", dict(zip(names, (o.milliseconds for o in shown), strict=True)))
    return (
        f"{head}<p>Means of {operators.measured} steps from step {operators.first} on, by "
        f"MindSpore's profiler: {total:.3f} ms a step in {len(operators.found)} kinds of operators "
        f"and places.</p>{picture}<div class='wide'><table>"
        f"<tr><th>operator</th><th>phase</th><th>cell</th>"
        f"<th>calls</th><th>ms</th><th>share</th></tr>{cells}</table></div>"
    )
