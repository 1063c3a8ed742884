# SPDX-License-Identifier: Apache-2.0
"""Formats metrics for the commands: one line for one task, a table for several tasks."""

from __future__ import annotations

from collections.abc import Mapping

from models.common.data import Data

__all__ = ["mean_lines", "report", "result_line", "result_lines"]


def result_lines(data: Data, what: str, metrics: Mapping[str, float]) -> str:
    """Return the lines that show the metrics of one evaluation.

    Args:
        data: the data that the model was evaluated on.
        what: name of the run or the model.
        metrics: metrics of `evaluate`.
    """
    if len(data.tasks) > 1:
        return report(data, what, metrics)
    return f"{result_line(data, metrics)}, {what}"


def mean_lines(
    data: Data, runs: int, mean: Mapping[str, float], deviation: Mapping[str, float] | None
) -> str:
    """Return the lines that show the metrics of several runs with different seeds.

    Args:
        data: the data that the runs were evaluated on.
        runs: number of runs.
        mean: means of the metrics over the runs.
        deviation: standard deviations of the metrics; None if there is only one run.
    """
    what = f"mean (standard deviation) of {runs} seeds"
    if len(data.tasks) > 1:
        return report(data, what, mean, deviation)
    return "\n".join(f"{name}: {what} {_cell(mean, deviation, name)}" for name in mean)


def result_line(data: Data, metrics: Mapping[str, float]) -> str:
    """Return the line of a single task.

    Example:
        >>> data = Data("toy rows", 1, 0, lambda *_: (), 1, [], bayes_auc=0.95)
        >>> result_line(data, {"auc": 0.9, "log_loss": 0.25})
        'AUC 0.90000, log loss 0.25000, Bayes AUC 0.95000 (toy rows)'
    """
    users = f", GAUC by user {metrics['gauc']:.5f}" if "gauc" in metrics else ""
    best = "" if data.bayes_auc is None else f", Bayes AUC {data.bayes_auc:.5f}"
    scores = f"AUC {metrics['auc']:.5f}, log loss {metrics['log_loss']:.5f}"
    return f"{scores}{users}{best} ({data.name})"


def report(
    data: Data, what: str, mean: Mapping[str, float], deviation: Mapping[str, float] | None = None
) -> str:
    """Return a table with a line per task, for all test rows and for each group of test rows.

    Args:
        data: the data that the model was evaluated on.
        what: name of the run or the runs, for the first line.
        mean: the metrics of one run, from `evaluate`, or the means of the metrics over several
            runs.
        deviation: standard deviations of the metrics over runs. Default: None, which means that
            there was only one run.

    Example:
        >>> data = Data("toy rows", 1, 0, lambda *_: (), 1, [], tasks=("buy", "click"))
        >>> metrics = {"auc.buy": 0.9, "log_loss.buy": 0.25, "auc.click": 0.8, "log_loss.click": 1}
        >>> print(report(data, "seed 0", metrics))
        toy rows, seed 0
        rows      task           AUC                log loss
        all       buy            0.90000            0.25000
        all       click          0.80000            1.00000
    """
    lines = [f"{data.name}, {what}", f"{'rows':9} {'task':14} {'AUC':18} log loss"]
    for group in ("", *data.groups):
        for task, end in zip(data.tasks, data.endings, strict=True):
            end = f"{end}.{group}" if group else end
            if f"auc{end}" in mean:  # a group may have no rows
                auc, loss = (_cell(mean, deviation, f"{name}{end}") for name in ("auc", "log_loss"))
                lines.append(f"{group or 'all':9} {task:14} {auc:18} {loss}")
    return "\n".join(lines)


def _cell(mean: Mapping[str, float], deviation: Mapping[str, float] | None, name: str) -> str:
    spread = "" if deviation is None else f" ({deviation[name]:.5f})"
    return f"{mean[name]:.5f}{spread}"
