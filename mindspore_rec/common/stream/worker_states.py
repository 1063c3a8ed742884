# SPDX-License-Identifier: Apache-2.0
"""States of the workers of a training as one value of a checkpoint, and back.

Workers whose state is the same, such as workers that split the rows of the same batches, have one
state. Workers that read partitions of their own have one state each; the states are kept together,
so that a training of any number of workers can go on from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["join_states", "state_for", "states_in"]

_KEYS = {"batches", "workers"}


def join_states(states: Sequence[Any]) -> Any:
    """Return the states of all workers as one.

    Args:
        states: JSON values, which may have arrays in them, one per worker in order.

    Returns:
        The state itself if all are equal; else a dict of `workers`, the list of all, and `batches`,
        the most batches that one of them counts.

    Raises:
        ValueError: there is no state.

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
    """Return the workers' states that `join_states` has put together; None for a single state.

    Example:
        >>> states_in({"batches": 4}) is None
        True
    """
    if isinstance(state, Mapping) and set(state) == _KEYS and isinstance(state["workers"], list):
        return list(state["workers"])
    return None


def state_for(state: Any, worker: int, workers: int) -> Any:
    """Return one worker's state, of an object that cannot go on with other numbers of workers.

    Args:
        state: what `join_states` returned.
        worker: number of the worker.
        workers: number of workers.

    Raises:
        ValueError: it is of another number of workers.

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
    """Return whether two values with arrays in them are equal, of dtypes too."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        return both and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
