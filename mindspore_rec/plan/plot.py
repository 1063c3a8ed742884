# SPDX-License-Identifier: Apache-2.0
"""Draw a plan with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindspore_rec.common.extras import pip_install
from mindspore_rec.plan.simulate import Plan

__all__ = ["check_plot", "save_plot"]

_ENDINGS = (".png", ".svg")


def check_plot(path: Path) -> None:
    """Check that a plot can be written to `path`, and create the directory of `path`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the name ends in neither .png nor .svg.
        OSError: the directory of `path` cannot be created.
    """
    if path.suffix not in _ENDINGS:
        raise ValueError(f"plot must end in {' or '.join(_ENDINGS)}, got {path}")
    _figure_class()
    path.absolute().parent.mkdir(parents=True, exist_ok=True)


def save_plot(plan: Plan, path: Path) -> None:
    """Plot the hit rate over the peak bytes: one line per curve, and the names of the points."""
    figure = _figure_class()(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    for number, curve in enumerate(plan.curves):
        mebibytes = [number / 2**20 for number in curve.bytes]
        style = {"marker": "o"} if curve.names else {"linewidth": 1, "linestyle": "--"}
        axes.plot(mebibytes, curve.hit_rate, label=curve.label, **style)
        for name, x, y in zip(curve.names, mebibytes, curve.hit_rate, strict=False):
            offset = (4, -12 if number % 2 == 0 else 5)  # keeps the names of equal points apart
            axes.annotate(name, (x, y), textcoords="offset points", xytext=offset, fontsize="small")
    axes.set_xscale("log")
    axes.set_xlabel("peak memory of rows and counters (MiB)")
    axes.set_ylabel("hit rate: lookups that read a trained row")
    axes.set_title(
        f"{plan.lookups:,} lookups, {plan.keys:,} distinct keys, {plan.row_bytes} bytes a row"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"plot needs matplotlib: {pip_install('plot')}; the curve as text needs nothing"
        ) from error
    return Figure
