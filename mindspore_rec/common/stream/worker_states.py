# SPDX-License-Identifier: Apache-2.0
"""Combine all workers' states into one value for a checkpoint, and extract each worker's state.

If all workers have the same state, for example because the workers split the rows of the same
batches, the checkpoint has one state. If the workers read different partitions, each worker has a
different state. The states of all workers are stored together, so that a training with any number
of workers can resume from these states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["join_states", "state_for", "states_in"]

_KEYS = {"batches", "workers"}


def join_states(states: Sequence[Any]) -> Any:
    """Return the states of all workers as one value.

    Args:
        states: the workers' states in the order of ranks. Each state is a JSON value that may
            contain arrays.

    Returns:
        If all states are equal, one of the states. If the states differ, a dict with two entries:
        `workers` is the list of all states, and `batches` is the greatest value of `batches` in the
        states.

    Raises:
        ValueError: `states` is empty.

    Example:
        >>> join_states([{"batches": 4}, {"batches": 4}])
        {'batches': 4}
        >>> join_states([{"batches": 4}, {"batches": 5}])
        {'batches': 5, 'workers': [{'batches': 4}, {'batches': 5}]}
    """
    all_states = list(states)
    if not all_states:
        raise ValueError("states must have at least one, got none")
    if all(_same(each, all_states[0]) for each in all_states):
        return all_states[0]
    counts = [int(each.get("batches", 0)) for each in all_states if isinstance(each, Mapping)]
    return {"batches": max(counts, default=0), "workers": all_states}


def states_in(state: Any) -> list[Any] | None:
    """Split the result of `join_states` into the workers' states; return None for a single state.

    Example:
        >>> states_in({"batches": 4}) is None
        True
    """
    if isinstance(state, Mapping) and set(state) == _KEYS and isinstance(state["workers"], list):
        return list(state["workers"])
    return None


def state_for(state: Any, worker: int, workers: int) -> Any:
    """Return one worker's state; raise ValueError if the number of workers has changed.

    Args:
        state: result of `join_states`.
        worker: index of the worker.
        workers: number of workers.

    Raises:
        ValueError: `state` was saved by a different number of workers.

    Example:
        >>> state_for(join_states([{"a": 1}, {"a": 2}]), 1, 2)
        {'a': 2}
    """
    states = states_in(state)
    if states is None:
        return state
    if len(states) != workers:
        raise ValueError(
            f"the state is of {len(states)} workers with a part each, and there are {workers}: "
            f"start as many workers as the saved training had"
        )
    return states[worker]


def _same(one: Any, other: Any) -> bool:
    """Return True if two values are equal, including the elements and dtypes of their arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        return both and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
