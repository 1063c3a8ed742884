# SPDX-License-Identifier: Apache-2.0
"""Callbacks with a state that the training's RecCheckpoint saves and restores automatically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore.train import Callback

__all__ = ["ResumedCallback", "steps_before"]


class ResumedCallback(Callback):
    """Callback whose state belongs to a single training, including its restarts.

    When a training begins, the callback resets its state. After the callback has reset its state, a
    `RecCheckpoint` among the callbacks passes the saved state to `go_on`. If `load_state_dict` was
    called before the training, the callback also passes the loaded state to `go_on`.

    Subclasses define `_reset`, `state_dict` and `go_on`.
    """

    _given: Mapping[str, Any] | None = None  # from `load_state_dict`, until training begins

    @property
    def state_name(self) -> str:
        """Name of the state in checkpoints."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state with which the next training begins.

        Raises:
            KeyError, TypeError, ValueError: `state` was not returned by `state_dict`.
        """
        self.go_on(state)
        self._given = dict(state)

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state after the training has begun."""
        raise NotImplementedError

    def catch_up(self, run_context: Any) -> None:
        """Add this step's results to the callback's state, before a checkpoint saves the state."""

    def __enter__(self) -> Any:
        """Begin a training."""
        state, self._given = self._given, None
        self._reset()
        if state is not None:
            self.go_on(state)
        return self

    def _reset(self) -> None:
        """Forget an earlier training."""
        raise NotImplementedError


def steps_before(run: Any) -> int:
    """Return the run's number of steps before this training; 0 without a RecCheckpoint.

    Args:
        run: parameters of the training, from `run_context.original_args()`.
    """
    return int(run.get("steps_before") or 0)
