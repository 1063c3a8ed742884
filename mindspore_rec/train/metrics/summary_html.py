# SPDX-License-Identifier: Apache-2.0
"""A TrainSummary as HTML for notebooks: tables, and a curve of each metric."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

__all__ = ["curve_html", "table_html"]

_WIDTH, _HEIGHT, _MARGIN = 240, 80, 6


def table_html(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; all texts are escaped.

    Example:
        >>> table_html(["metric"], [["a<b"]])
        '<table><tr><th>metric</th></tr><tr><td>a&lt;b</td></tr></table>'
    """
    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def curve_html(name: str, points: Sequence[tuple[int, float]]) -> str:
    """Return an SVG picture of one metric over the steps; '' if fewer than two values are finite.

    Args:
        name: name of the metric.
        points: step and value of each evaluation.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    steps, values = [step for step, _ in finite], [value for _, value in finite]
    places = " ".join(
        f"{_place(step, steps, _WIDTH):.1f},{_HEIGHT - _place(value, values, _HEIGHT):.1f}"
        for step, value in finite
    )
    caption = html.escape(
        f"{name}: {values[0]:.5g} at step {steps[0]:,}, {values[-1]:.5g} at step {steps[-1]:,}"
    )
    return (
        f'<figure style="display:inline-block;margin:4px"><figcaption>{caption}</figcaption>'
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        "</svg></figure>"
    )


def _place(value: float, values: Sequence[float], size: int) -> float:
    """Return the position of a value, in pixels, on an axis of `size` pixels."""
    least, greatest = min(values), max(values)
    share = 0.5 if greatest == least else (value - least) / (greatest - least)
    return _MARGIN + share * (size - 2 * _MARGIN)


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(each)}</{tag}>' for each in cells)}</tr>"
