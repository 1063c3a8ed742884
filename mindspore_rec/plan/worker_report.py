# SPDX-License-Identifier: Apache-2.0
"""Format a worker plan as text: one part about the tables, and one part about the steps."""

from __future__ import annotations

from mindspore_rec.plan.report import bytes_text
from mindspore_rec.plan.workers import WorkerOutcome, WorkerPlan

__all__ = ["worker_text"]

_TABLE_HEAD = (
    "workers",
    "table",
    "placement",
    "most rows",
    "rows",
    "lookups",
    "keys",
    "sent keys",
    "sent bytes",
)
_STEP_HEAD = (
    "workers",
    "bytes of rows",
    "compute",
    "tables",
    "exchange",
    "average",
    "step",
    "samples/s",
)


def worker_text(plan: WorkerPlan) -> str:
    """Return a worker plan as text: for each number of workers, the loads of the tables and the
    seconds of a step.
    """
    machine = plan.machine
    keys = ", ".join(f"{number:,} keys of '{name}'" for name, number in plan.keys.items())
    lines = [
        f"{plan.samples:,} samples, {plan.batch_size:,} a worker and step; {keys}",
        "",
        "per worker and step; rows, lookups, keys: the busiest worker's share of an even one",
        *_table_lines(plan),
        "",
        f"predicted for links of {8e-9 * machine.link_bytes:g} Gbit/s shared by "
        f"{machine.workers_per_host}, {1e6 * machine.latency:g} us of latency, "
        f"{1e6 * machine.message:g} us a message, {1e-9 * machine.memory_bytes:g} GB/s of memory",
        *_step_lines(plan),
    ]
    if any(outcome.expected for outcome in plan.outcomes):
        lines += ["", "* expected: the log is shorter than one step of so many workers"]
    return "\n".join(lines)


def _table_lines(plan: WorkerPlan) -> list[str]:
    cells: list[tuple[str, ...]] = [_TABLE_HEAD]
    for outcome in plan.outcomes:
        for name, table in outcome.tables.items():
            place = table.placement if table.owner is None else f"owner {table.owner}"
            cells.append(
                (
                    _workers(outcome),
                    name,
                    place,
                    f"{table.most_rows:,}",
                    f"{table.row_imbalance:.3f}",
                    f"{table.lookup_imbalance:.3f}",
                    f"{table.key_imbalance:.3f}",
                    f"{table.sent_keys:,.0f}",
                    bytes_text(table.sent_bytes),
                )
            )
    return _aligned(cells)


def _step_lines(plan: WorkerPlan) -> list[str]:
    cells: list[tuple[str, ...]] = [_STEP_HEAD]
    for outcome in plan.outcomes:
        cells.append(
            (
                _workers(outcome),
                bytes_text(outcome.row_bytes),
                _milliseconds(outcome.compute_seconds),
                _milliseconds(outcome.table_seconds),
                _milliseconds(outcome.exchange_seconds),
                _milliseconds(outcome.average_seconds),
                _milliseconds(outcome.step_seconds),
                _speed(outcome.samples_per_second),
            )
        )
    return _aligned(cells)


def _aligned(cells: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]


def _workers(outcome: WorkerOutcome) -> str:
    return f"{'* ' if outcome.expected else ''}{outcome.workers:,}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def _speed(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
