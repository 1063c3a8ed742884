# SPDX-License-Identifier: Apache-2.0
"""Callbacks whose state a RecCheckpoint of the same training saves and restores by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore.train import Callback

__all__ = ["ResumedCallback", "steps_before"]


class ResumedCallback(Callback):
    """Callback with a state that is of one training, and of a restart of it.

    A training begins without a state: what an object has of an earlier one is reset. A
    `RecCheckpoint` among the callbacks loads the saved state with `go_on` when training begins; a
    state that was given to `load_state_dict` before is used too.

    Subclasses define `_reset`, `state_dict` and `go_on`.
    """

    _given: Mapping[str, Any] | None = None  # to `load_state_dict`, until training begins

    @property
    def state_name(self) -> str:
        """Name of the state in checkpoints."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, with which the next training begins.

        Raises:
            KeyError, TypeError, ValueError: it is not what `state_dict` returned.
        """
        self.go_on(state)
        self._given = dict(state)

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Go on from a state in the training that has begun."""
        raise NotImplementedError

    def catch_up(self, run_context: Any) -> None:
        """Take in what has happened in this step, before the state is saved."""

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
    """Return the steps of a run before this training, as its RecCheckpoint counts them.

    Args:
        run: parameters of the training.
    """
    return int(run.get("steps_before") or 0)
