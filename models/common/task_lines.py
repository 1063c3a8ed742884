# SPDX-License-Identifier: Apache-2.0
"""The closing lines of the commands: each task on all test rows and on each group of them."""

from __future__ import annotations

from collections.abc import Mapping

from models.common.data import Data

__all__ = ["report"]


def report(
    data: Data, what: str, mean: Mapping[str, float], deviation: Mapping[str, float] | None = None
) -> str:
    """A table of `models.mmoe.run.evaluate`'s metrics.

    Args:
        data: what was evaluated on.
        what: the run or runs, for the first line.
        mean: metrics, or their mean over runs.
        deviation: their standard deviation over runs; None for one run.

    Returns:
        Lines, with one group of rows and one task each.

    Example:
        >>> from models.common.data import Data
        >>> data = Data("toy rows", 1, 0, lambda *_: (), 1, [], tasks=("income",))
        >>> print(report(data, "seed 0", {"auc.income": 0.9, "log_loss.income": 0.25}))
        toy rows, seed 0
        rows      task           AUC                log loss
        all       income         0.90000            0.25000
    """
    lines = [f"{data.name}, {what}", f"{'rows':9} {'task':14} {'AUC':18} log loss"]
    for group in ("", *data.groups):
        for task in data.tasks:
            end = f"{task}.{group}" if group else task
            auc, loss = (
                _cell(mean, deviation, f"{metric}.{end}") for metric in ("auc", "log_loss")
            )
            lines.append(f"{group or 'all':9} {task:14} {auc:18} {loss}")
    return "\n".join(lines)


def _cell(mean: Mapping[str, float], deviation: Mapping[str, float] | None, name: str) -> str:
    spread = "" if deviation is None else f" ({deviation[name]:.5f})"
    return f"{mean[name]:.5f}{spread}"
