# SPDX-License-Identifier: Apache-2.0
"""Format a plan as text: a table of the choices, and curves."""

from __future__ import annotations

import math

from mindspore_rec.plan.outcome import Curve, Outcome
from mindspore_rec.plan.simulate import Plan
from mindspore_rec.plan.sizes import DIGEST_BYTES

__all__ = ["bytes_text", "plan_text", "text_curve"]

_MARKS = "oxv+*#@%&=abcdefghijklmnpqrstuwyz"
_HEAD = (
    "admission",
    "idle",
    "capacity",
    "hit rate",
    "admitted",
    "peak rows",
    "final rows",
    "counters",
    "peak bytes",
    "final bytes",
    "evictions",
)


def bytes_text(number: float) -> str:
    """Format a number of bytes with a unit.

    Example:
        >>> bytes_text(92), bytes_text(1536), bytes_text(3 << 30)
        ('92 B', '1.5 KiB', '3.0 GiB')
    """
    if number < 1024:
        return f"{number:.0f} B"
    power = min(int(math.log(number, 1024)), 5)
    return f"{number / 1024**power:.1f} {'KMGTP'[power - 1]}iB"


def plan_text(plan: Plan) -> str:
    """Format a plan: the log's figures, a line for each choice, and the curves."""
    lines = [
        f"{plan.samples:,} samples, {plan.steps:,} steps, {plan.lookups:,} lookups, "
        f"{plan.keys:,} distinct keys, {plan.row_bytes} bytes a row "
        f"and {DIGEST_BYTES} of its digest, {2 * DIGEST_BYTES} where rows leave with age",
        "",
    ]
    cells = [_HEAD, *map(_cells, plan.outcomes)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEAD))]
    for row in cells:
        lines.append("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)))
    lines += ["", "hit rate over peak bytes", text_curve(plan.curves)]
    return "\n".join(lines)


def _cells(outcome: Outcome) -> tuple[str, ...]:
    return (
        str(outcome.admission),
        "-" if outcome.idle is None else f"{outcome.idle:,} {outcome.idle_unit}",
        "-" if outcome.capacity is None else f"{outcome.order} {outcome.capacity:,}",
        f"{100 * outcome.hit_rate:.2f} %",
        f"{100 * outcome.admitted_rate:.2f} %",
        f"{outcome.peak_rows:,}",
        f"{outcome.final_rows:,}",
        f"{outcome.peak_counters:,}",
        bytes_text(outcome.peak_bytes),
        bytes_text(outcome.final_bytes),
        f"{outcome.evictions:,}",
    )


def text_curve(curves: list[Curve], width: int = 72, height: int = 16) -> str:
    """Draw a text chart of hit rates over bytes on a log scale; each curve has its own character.

    Example:
        >>> print(text_curve([Curve("x", [1, 2], [10, 1000], [0.1, 0.9])], width=12, height=3))
         90.0 % |           o
         50.0 % |
         10.0 % |o
                +------------
                 10 B  1000 B
        o x
    """
    x = [math.log(max(b, 1)) for curve in curves for b in curve.bytes]
    y = [rate for curve in curves for rate in curve.hit_rate]
    left, right, low, high = min(x), max(x), min(y), max(y)
    grid = [[" "] * width for _ in range(height)]
    marked = [(_MARKS[i % len(_MARKS)], curve) for i, curve in enumerate(curves)]
    # Draw curves with few points last, so that longer curves do not hide the points.
    for mark, curve in sorted(marked, key=lambda pair: -len(pair[1].bytes)):
        for b, rate in zip(curve.bytes, curve.hit_rate, strict=True):
            column = _place(math.log(max(b, 1)), left, right, width)
            grid[height - 1 - _place(rate, low, high, height)][column] = mark
    lines = []
    for i, row in enumerate(grid):
        rate = high - (high - low) * i / max(height - 1, 1)
        lines.append(f"{100 * rate:5.1f} % |{''.join(row).rstrip()}")
    first = bytes_text(min(b for curve in curves for b in curve.bytes))
    last = bytes_text(max(b for curve in curves for b in curve.bytes))
    lines.append(" " * 8 + "+" + "-" * width)
    lines.append(" " * 9 + first + last.rjust(width - len(first)))
    return "\n".join([*lines, *(f"{mark} {curve.label}" for mark, curve in marked)])


def _place(value: float, low: float, high: float, cells: int) -> int:
    return 0 if high <= low else round((value - low) / (high - low) * (cells - 1))
