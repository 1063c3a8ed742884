# SPDX-License-Identifier: Apache-2.0
"""Pictures as SVG text for use in a page. The module needs matplotlib: the extra `plot`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from mindspore_rec.common.extras import pip_install

__all__ = ["bars", "lines"]

_WIDTH = 8.0  # inches


def lines(title: str, axis: str, points: Mapping[str, Sequence[tuple[Any, Any]]]) -> str:
    """Draw lines through points and return the SVG.

    Args:
        title: title above the picture.
        axis: name of the x axis.
        points: maps the name of each line to the line's points (x, y).

    Raises:
        ValueError: matplotlib is not installed.

    Example:
        >>> lines("Loss", "step", {"training": [(1, 0.7), (2, 0.6)]})[:4]
        '<svg'
    """
    figure, axes = _axes(3.2)
    for name, each in points.items():
        axes.plot([x for x, _ in each], [y for _, y in each], label=name, marker=".")
    axes.set(title=title, xlabel=axis)
    if points:
        axes.legend(ncols=2, fontsize="small")
    return _svg(figure)


def bars(axis: str, lengths: Mapping[str, float]) -> str:
    """Draw horizontal bars, the first bar on top, and return the SVG.

    Args:
        axis: name of the x axis.
        lengths: maps the name of each bar to the bar's length.

    Raises:
        ValueError: matplotlib is not installed.
    """
    figure, axes = _axes(0.8 + 0.27 * len(lengths))
    axes.barh(list(lengths), list(lengths.values()))
    axes.invert_yaxis()
    axes.set(xlabel=axis)
    axes.tick_params(axis="y", labelsize="small")
    return _svg(figure)


def _axes(height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(f"--report needs matplotlib: {pip_install('plot')}") from error
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]
