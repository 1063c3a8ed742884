# SPDX-License-Identifier: Apache-2.0
"""CallbackStates: saves and restores the states of this library's callbacks in checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mindspore import train

from mindspore_rec.common.run.errors import CheckpointError

__all__ = ["BEST", "CALLBACKS", "CallbackStates"]

logger = logging.getLogger("mindspore_rec")

CALLBACKS = "callbacks"  # name of the callbacks' states in a checkpoint
BEST = "best"  # folder for best weights in the run's directory


class CallbackStates:
    """States of all callbacks that have a `state_name`, except callbacks that are in `given`.

    Args:
        callbacks: all callbacks of the training.
        given: objects whose states are saved by other code, under names that the user chose.

    Raises:
        ValueError: a MindSpore callback among the callbacks has a state that cannot be saved.

    Example:
        >>> CallbackStates([], []).states()
        {}
    """

    def __init__(self, callbacks: Iterable[Any], given: Iterable[Any]) -> None:
        known = {id(each) for each in given}
        self._every: dict[str, Any] = {}
        for callback in callbacks:
            _check_can_be_kept(callback)
            name = getattr(callback, "state_name", None)
            if name is not None:
                self._every[self._unused(name)] = callback
        self._kept = {name: each for name, each in self._every.items() if id(each) not in known}

    def _unused(self, name: str) -> str:
        number, unused = 1, name
        while unused in self._every:
            number += 1
            unused = f"{name} {number}"
        return unused

    def begin(self, directory: Path, newest_step: Callable[[], int]) -> None:
        """Assign a folder in the run's directory to each callback that saves weights.

        Args:
            directory: directory of the run.
            newest_step: function that returns the step of the newest checkpoint in the directory.
        """
        for name, callback in self._every.items():
            keep_beside = getattr(callback, "keep_beside", None)
            if keep_beside is not None:
                keep_beside(directory / BEST / quote(name, safe=" "), newest_step)

    def load(self, saved: Any, path: Path) -> None:
        """Restore the callbacks' states from a checkpoint.

        If a callback has no saved state, the callback begins with its initial state. If a saved
        state has no callback, a warning is logged.

        Args:
            saved: the callbacks' states by name.
            path: path of the checkpoint, for error messages.

        Raises:
            CheckpointError: a state is damaged.
        """
        if not isinstance(saved, Mapping):
            raise CheckpointError(f"{path} is damaged: states of callbacks must be an object")
        for name in saved.keys() & self._kept.keys():
            try:
                self._kept[name].go_on(saved[name])
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise CheckpointError(
                    f"{name} cannot go on from its state in {path}: {type(error).__name__}: {error}"
                ) from error
        if left := sorted(saved.keys() - self._kept.keys()):
            logger.warning(
                "%s has the states of %s, which are not among the callbacks, or with other "
                "arguments: what they have seen is dropped",
                path,
                ", ".join(left),
            )

    def catch_up(self, run_context: Any) -> None:
        """Add this step's results to the callbacks' states, before the states are saved."""
        for callback in self._every.values():
            callback.catch_up(run_context)

    def states(self) -> dict[str, Any]:
        """Return each callback's state by name; an empty dict if no callback has a state."""
        if not self._kept:
            return {}
        return {CALLBACKS: {name: each.state_dict() for name, each in self._kept.items()}}


def _check_can_be_kept(callback: Any) -> None:
    if isinstance(callback, (train.EarlyStopping, train.ReduceLROnPlateau)):
        name = type(callback).__name__
        raise ValueError(
            f"callbacks must not have mindspore.train's {name} beside a RecCheckpoint, which "
            "cannot save what it has seen, so that a restart would end otherwise: use "
            f"mindspore_rec.{name}"
        )
