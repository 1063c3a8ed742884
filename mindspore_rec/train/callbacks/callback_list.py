# SPDX-License-Identifier: Apache-2.0
"""Sort the callbacks of a run by calling order, and reject callbacks that cannot work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mindspore import train
from mindspore.train import Callback

__all__ = ["callback_list", "evaluation_callbacks"]

_ON_EVAL = (
    "on_eval_begin",
    "on_eval_epoch_begin",
    "on_eval_step_begin",
    "on_eval_step_end",
    "on_eval_epoch_end",
    "on_eval_end",
)


def callback_list(callbacks: Any, has_tables: bool = False) -> list[Callback]:
    """Return callbacks in the order in which they are called.

    Args:
        callbacks: one callback, several callbacks, or None.
        has_tables: True if the run trains tables. The callbacks of MindSpore do not restore the
            rows of tables.

    Raises:
        TypeError: a callback is not a `mindspore.train.Callback`.
        ValueError: a callback of MindSpore cannot work with this library.

    Example:
        >>> callback_list(None)
        []
    """
    if callbacks is None:
        return []
    all_callbacks = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in all_callbacks:
        if not isinstance(callback, Callback):
            raise TypeError(
                f"callbacks must be mindspore.train.Callback objects, got {type(callback).__name__}"
            )
        _check_works(callback, has_tables)
    return sorted(all_callbacks, key=lambda callback: getattr(callback, "runs_last", False))


def evaluation_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """Return the callbacks with methods `on_eval_*`, which `fit` also calls in evaluations.

    As in MindSpore's `fit`, MindSpore's own callbacks are excluded.

    Example:
        >>> evaluation_callbacks([train.LossMonitor()])
        []
    """
    return [each for each in callbacks if not _is_mindspores(each) and _sees_evaluations(each)]


def _is_mindspores(callback: Callback) -> bool:
    return type(callback).__module__.startswith("mindspore.")


def _sees_evaluations(callback: Callback) -> bool:
    return any(getattr(type(callback), name) is not getattr(Callback, name) for name in _ON_EVAL)


def _check_works(callback: Callback, has_tables: bool) -> None:
    if isinstance(callback, train.SummaryCollector):
        raise ValueError(
            "callbacks must not have a SummaryCollector, which forks processes beside the threads "
            "of tables and waits for them for ever: write loss and metrics to TensorBoard as "
            "docs/training.md shows, and the figures of tables by TableStats(log_dir=...)"
        )
    if has_tables and getattr(callback, "restore_best_weights", False) is True:
        raise ValueError(
            f"callbacks must not have {type(callback).__name__}(restore_best_weights=True), which "
            "restores dense parameters without the rows of tables: use mindspore_rec.EarlyStopping"
        )
