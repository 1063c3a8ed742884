# SPDX-License-Identifier: Apache-2.0
"""Report of a training as one HTML page: metrics, curves, calibration, settings."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.command.text import html_table

__all__ = ["Report", "write_report"]

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:15px sans-serif;margin:2em auto;max-width:60em;padding:0 1em}}
td,th{{padding:.2em .8em;text-align:right}}th:first-child,td:first-child{{text-align:left}}
table{{border-collapse:collapse}}tr:nth-child(even){{background:#f4f4f4}}
svg{{max-width:100%;height:auto}}pre{{background:#f4f4f4;padding:1em;overflow:auto}}</style>
</head><body><h1>{title}</h1>
"""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Report:
    """Contents of the HTML report.

    Attributes:
        title: title of the page.
        summary: a few lines about the training.
        tables: dict from a table's heading to the table's header and rows.
        curves: dict from each plot's heading to the plot's lines. The lines of a plot are a dict
            from each line's name to the line's points.
        settings: text of the YAML file.
    """

    title: str
    summary: str
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]
    curves: Mapping[str, Mapping[str, Points]]
    settings: str


def write_report(path: Path, report: Report) -> None:
    """Write the HTML report. Without matplotlib (extra `plot`), tables replace the pictures."""
    parts = [_HEAD.format(title=html.escape(report.title))]
    parts.append(f"<p>{html.escape(report.summary)}</p>")
    for heading, (head, rows) in report.tables.items():
        parts.append(f"<h2>{html.escape(heading)}</h2>{html_table(head, rows)}")
    for heading, lines in report.curves.items():
        parts.append(f"<h2>{html.escape(heading)}</h2>{_picture(heading, lines)}")
    parts.append(f"<h2>Settings</h2><pre>{html.escape(report.settings)}</pre></body></html>\n")
    path.write_text("\n".join(parts), encoding="utf-8")


def _picture(axis: str, lines: Mapping[str, Points]) -> str:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        rows = [[name, x, y] for name, points in lines.items() for x, y in points]
        return html_table(["", "x", axis], rows[:: max(1, len(rows) // 20)])
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    for name, points in lines.items():
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, marker=".")
    if lines:
        axes.legend(fontsize="small")
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]
