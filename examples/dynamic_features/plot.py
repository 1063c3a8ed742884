# SPDX-License-Identifier: Apache-2.0
"""Draw the curves of `train.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = {"unbounded": "no policy", "bounded": "admission and eviction"}
COLORS = {"unbounded": "#b35806", "bounded": "#2b6cb0"}


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot the number of rows and the AUC of both models over the stream.

    Args:
        figures: the result of `train.compare`.
        path: path of the plot, .png or .svg.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7.2, 5.4), sharex=True)
    for kind, name in NAMES.items():
        samples = [point["sample"] / 1e6 for point in figures[kind]]
        rows = [point["rows"] / 1e3 for point in figures[kind]]
        top.plot(samples, rows, label=name, color=COLORS[kind], linewidth=1.6)
        auc = [point["auc"] for point in figures[kind]]
        style = "-" if kind == "unbounded" else "--"
        bottom.plot(samples, auc, style, label=name, color=COLORS[kind], linewidth=1.4)
    alive = figures["alive"] / 1e3
    top.axhline(alive, color="#777777", linestyle=":", label="ids alive at a time")
    top.set_yscale("log")
    top.set_ylabel("rows of the table, thousands")
    bottom.axhline(figures["best_auc"], color="#777777", linestyle=":", label="best possible")
    bottom.set_ylabel("AUC before training on it")
    bottom.set_xlabel("samples, millions")
    for axes in (top, bottom):
        axes.grid(alpha=0.3)
        axes.legend(loc="center right", frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)
