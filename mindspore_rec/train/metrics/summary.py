# SPDX-License-Identifier: Apache-2.0
"""TrainSummary: statistics of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.common.old_arguments import Renamed, old_attribute, takes_old
from mindspore_rec.train.metrics.summary_html import curve_html, table_html

__all__ = ["TableSummary", "TrainSummary"]


@old_attribute("dim", "embedding_dim")
@takes_old(Renamed("dim", "embedding_dim", replaces=True))
@dataclass(frozen=True)
class TableSummary:
    """Statistics of one table at the end of a run.

    Args:
        name: name of the table.
        embedding_dim: number of floats in a row's value.
        rows: number of rows in memory.
        bytes: bytes of memory for rows, optimizer state, index, change log and digests, including
            the memory reserved for further rows.
    """

    name: str
    embedding_dim: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, table: Any) -> TableSummary:
        """Return the current statistics of a table."""
        stats = table.stats()
        parts = ("row_bytes", "index_bytes", "change_log_bytes", "digest_bytes")
        memory_bytes = sum(stats[part] for part in parts)
        return cls(table.name, table.dim, stats["rows"], memory_bytes)


@dataclass
class TrainSummary:
    """Statistics of a run of `RecModel.train` or `RecModel.online_train`; `print` shows a report.

    A notebook shows the metrics and the tables, and a curve of each metric over the evaluations.

    Args:
        steps: number of completed optimizer steps.
        samples: number of rows in the batches of all completed steps.
        epochs: number of completed epochs.
        seconds: wall time of the run.
        step_seconds: seconds spent in steps and in waiting for batches. `step_seconds` excludes the
            first step of the run, steps that compiled a graph, and callbacks, such as an
            evaluation, at the end of a step.
        step_samples: number of rows in the batches of the steps that `step_seconds` counts.
        compile_seconds: total seconds of the first step of the run and of all later steps that
            compiled a graph.
        loss: loss of the last step; NaN before the first step.
        metrics: metrics of the last evaluation.
        history: a pair `(step, metrics)` for each evaluation.
        tables: statistics of each table at the end of the run.
        interrupted: whether a signal (Ctrl-C, SIGTERM) ended the run.
        stop_reason: reason why a callback, the stream or a signal ended the run, or ''.
        workers: number of workers; `steps`, `samples` and `loss` include all workers.
        waits: seconds that each worker has waited for other workers between steps; empty for one
            worker. The slowest worker waits for the shortest time.

    Example:
        >>> TrainSummary(step_samples=3000, step_seconds=2.0).samples_per_second
        1500.0
    """

    steps: int = 0
    samples: int = 0
    epochs: int = 0
    seconds: float = 0.0
    step_seconds: float = 0.0
    step_samples: int = 0
    compile_seconds: float = 0.0
    loss: float = float("nan")
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    tables: list[TableSummary] = field(default_factory=list)
    interrupted: bool = False
    stop_reason: str = ""
    workers: int = 1
    waits: list[float] = field(default_factory=list)

    @property
    def samples_per_second(self) -> float:
        """Rows per second, `step_samples` / `step_seconds`; 0.0 if `step_seconds` is 0."""
        return self.step_samples / self.step_seconds if self.step_seconds else 0.0

    @property
    def slowest_worker(self) -> int | None:
        """Index of the slowest worker, for which the other workers waited; None for one worker."""
        return self.waits.index(min(self.waits)) if len(self.waits) > 1 else None

    @property
    def waiting_share(self) -> float:
        """Mean share of the run's time, 0 to 1, that workers waited for the slowest worker."""
        if len(self.waits) < 2 or not self.seconds:
            return 0.0
        others = (sum(self.waits) - min(self.waits)) / (len(self.waits) - 1)
        return min(others / self.seconds, 1.0)

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON values."""
        figures = {name: value for name, value in vars(self).items() if name != "tables"}
        figures["samples_per_second"] = round(self.samples_per_second, 1)
        figures["history"] = [{"step": step, **metrics} for step, metrics in self.history]
        figures["tables"] = [vars(table) for table in self.tables]
        return figures

    def __str__(self) -> str:
        lines = [
            f"{self._ending()}: {self.steps:,} steps, {self.samples:,} samples in "
            f"{self.seconds:.1f} s, {self.samples_per_second:,.0f} samples/s, loss {self.loss:.5f}"
        ]
        if self.slowest_worker is not None:
            lines.append(
                f"{self.workers} workers: the slowest was worker {self.slowest_worker}, for which "
                f"the others waited {self.waiting_share:.1%} of the time between steps"
            )
        if self.metrics:
            lines.append(", ".join(f"{name} {value:.5f}" for name, value in self.metrics.items()))
        for table in self.tables:
            lines.append(
                f"table {table.name}: {table.rows:,} rows of {table.embedding_dim} floats, "
                f"{table.bytes / 2**20:,.1f} MiB"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return metrics, curves and tables as HTML, for notebooks."""
        figures = [
            (self._ending(), f"{self.steps:,} steps, {self.seconds:.1f} s"),
            ("samples", f"{self.samples:,}, {self.samples_per_second:,.0f} per second"),
            ("loss of the last step", f"{self.loss:.5f}"),
            *((name, f"{value:.5f}") for name, value in self.metrics.items()),
        ]
        parts = [table_html(("metric", "value"), figures)]
        for name in dict.fromkeys(name for _, metrics in self.history for name in metrics):
            points = [(step, metrics[name]) for step, metrics in self.history if name in metrics]
            parts.append(curve_html(name, points))
        if self.tables:
            rows = [
                (each.name, f"{each.rows:,}", str(each.embedding_dim), f"{each.bytes / 2**20:,.1f}")
                for each in self.tables
            ]
            parts.append(table_html(("table", "rows", "embedding_dim", "MiB"), rows))
        return "".join(parts)

    def _ending(self) -> str:
        if self.interrupted:
            return "Interrupted by Ctrl-C or SIGTERM"
        return f"Stopped ({self.stop_reason})" if self.stop_reason else "Trained"
