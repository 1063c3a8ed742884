# SPDX-License-Identifier: Apache-2.0
"""WorkerStates: reads the states that one worker restores: callbacks, data, random generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.errors import CheckpointError, reading
from mindspore_rec.common.run.manifest_fields import state_files, workers_of
from mindspore_rec.common.run.share import Share
from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.common.stream.worker_states import join_states, state_for
from mindspore_rec.train.checkpoint.callback_states import CALLBACKS
from mindspore_rec.train.checkpoint.data_place import NAME as DATA, PASSES
from mindspore_rec.train.checkpoint.random_state import check_random_state, derived_random_state

__all__ = ["WorkerStates"]


class WorkerStates:
    """States that one worker restores from a checkpoint; the number of workers may have changed.

    If the number of workers is unchanged, each worker restores its own states, bit for bit. If the
    number of workers has changed, the states are restored as follows.

    * The training data load the saved states of all workers, and are divided among the present
      workers.
    * An object with `load_worker_states(states, worker, workers)` receives the states of all
      workers.
    * An object without `load_worker_states` is restored only if its state was the same on all
      workers.
    * Random generators of a new worker get states derived from worker 0's states.

    Args:
        entry: the checkpoint.
        reader: pair of this worker's index and the number of workers.

    Attributes:
        names: names of the objects that have a state; the names are the same on all workers.

    Raises:
        CheckpointError: a file is damaged.
    """

    def __init__(self, entry: Entry, reader: Share) -> None:
        saved = workers_of(entry.manifest)
        self._reader = reader
        self._same = reader.is_part_of(saved)
        self._path = entry.path / state_files(reader.worker if self._same else 0)[0]
        self._states = [read_states(entry.path, worker) for worker in range(saved)]
        self._objects = [states.get("objects", {}) for states in self._states]
        if not all(isinstance(each, dict) for each in self._objects):
            raise CheckpointError(f"{self._path} is damaged: objects must be an object")
        self.names = list(self._objects[0])
        if any(each.keys() != self._objects[0].keys() for each in self._objects):
            raise CheckpointError(f"{self._path} has other objects than other workers' files")

    def data(self) -> Any:
        """Return the state to load into the training data; None if no state was saved."""
        if DATA not in self.names:
            return None
        return join_states([each[DATA] for each in self._objects])

    def passes(self) -> Any:
        """Return the saved position in the passes over the data; None if no position was saved.

        If the number of workers has changed, return the position of worker 0.
        """
        return self._states[self._reader.worker if self._same else 0].get(PASSES)

    def callbacks(self) -> Any:
        """Return the callbacks' states by name; the states must be the same on all workers."""
        return self._states[self._reader.worker if self._same else 0].get(CALLBACKS, {})

    def load_all(self, owners: Mapping[str, Any]) -> None:
        """Load the saved states into the objects, by name; see `load`."""
        for name, owner in owners.items():
            self.load(name, owner)

    def load(self, name: str, owner: Any) -> None:
        """Load the saved state of an object into the object.

        Raises:
            CheckpointError: the object rejects the state.
        """
        try:
            self._load(name, owner)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise CheckpointError(
                f"{name!r} cannot go on from the state in {self._path}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _load(self, name: str, owner: Any) -> None:
        worker, workers = self._reader.worker, self._reader.workers
        states = [each[name] for each in self._objects]
        if name == DATA:
            owner.load_state_dict(self.data())
        elif self._same:
            owner.load_state_dict(states[worker])
        elif hasattr(owner, "load_worker_states"):
            owner.load_worker_states(states, worker, workers)
        else:
            owner.load_state_dict(state_for(join_states(states), worker, workers))

    def random(self) -> dict[str, Any]:
        """Check and return the states of the random generators.

        Raises:
            CheckpointError: the states are damaged.
        """
        worker = self._reader.worker
        with reading(self._path):
            if worker < len(self._states):
                state = self._states[worker]["random"]
            else:
                state = derived_random_state(self._states[0]["random"], worker)
            check_random_state(state)
        return dict(state)
