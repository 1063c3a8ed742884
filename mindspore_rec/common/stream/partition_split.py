# SPDX-License-Identifier: Apache-2.0
"""Divide a topic's partitions and positions among workers, and merge the workers' positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "merged_state",
    "partitions_of",
    "row_share",
    "state_of",
    "state_of_partitions",
    "with_partitions",
]


def partitions_of(worker: int, workers: int, partitions: Sequence[int]) -> list[int]:
    """Return the partitions that a worker reads: every `workers`-th partition from `worker` on.

    Raises:
        ValueError: there are fewer partitions than workers.

    Example:
        >>> [partitions_of(worker, 2, [0, 1, 2]) for worker in range(2)]
        [[0, 2], [1]]
    """
    if len(partitions) < workers:
        raise ValueError(
            f"{workers} workers need as many partitions, or have to split rows, got {partitions}"
        )
    return sorted(partitions)[worker::workers]


def row_share(rows: int, worker: int, workers: int) -> tuple[int, int]:
    """Return a worker's share of a batch: the first row, and the row after the last row.

    Example:
        >>> [row_share(5, worker, 2) for worker in range(2)]
        [(0, 2), (2, 5)]
    """
    return rows * worker // workers, rows * (worker + 1) // workers


def merged_state(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the states of several `StreamSource` objects into the state of one stream.

    In the merged state, every partition keeps its position, which may be inside a message. In the
    merged state, the first partition has the turn.

    Args:
        states: states of streams over different partitions of one topic.

    Raises:
        ValueError: a stream has made decisions that depended on timing. Decisions that depended on
            timing cannot be repeated with a different number of workers. ValueError is also raised
            if the states are from different topics, or if two states have the same partition.
    """
    if all(
        state["partitions"] == states[0]["partitions"] and state["order"] == states[0]["order"]
        for state in states
    ):
        return dict(states[0])  # all have read the same
    _check_mergeable(states)
    ids = [state["topic_id"] for state in states if state.get("topic_id") is not None]
    orders = [state["order"] for state in states]
    partitions = sorted(p for state in states for p in state["partitions"])
    begun = {p: rows for order in orders for p, rows in _begun(order).items()}
    first = str(partitions[0])
    schemas = [state["schema"] for state in states if state["schema"] is not None]
    marks = [state["dead_marks"] for state in states]
    times = [state["watermark"] for state in states if state["watermark"] is not None]
    order = {
        "offsets": _union(order["offsets"] for order in orders),
        "turn_of": partitions[0],
        "row": begun.pop(first, 0),
        "rows": begun,
        "idle": sorted(p for order in orders for p in order["idle"]),
        "used": 0,
        **{name: sum(order.get(name, 0) for order in orders) for name in _COUNTS},
        "sequences": _union(order["sequences"] for order in orders),
        **_named("epochs", _union(order.get("epochs", {}) for order in orders)),
        **_named("outdated", sum(order.get("outdated", 0) for order in orders)),
    }
    return {
        **states[0],
        "partitions": partitions,
        "batches": max(state["batches"] for state in states),
        "rows": sum(state["rows"] for state in states),
        "watermark": max(times, default=None),
        "dead": _summed(state["dead"] for state in states),
        "dead_marks": None if None in marks else _least(marks),
        "dead_share": None,
        "schema": schemas[0] if schemas else None,
        "order": order,
        **({"topic_id": ids[0]} if ids else {}),
    }


def state_of(
    worker: int, workers: int, partitions: Sequence[int], states: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the state from which one of several workers resumes.

    Args:
        worker: index of the worker.
        workers: number of workers.
        partitions: the partitions that the worker reads.
        states: states of any number of earlier workers.

    Raises:
        ValueError: a partition moves to another worker, and the states cannot be merged.
    """
    if len(states) == workers and list(states[worker]["partitions"]) == list(partitions):
        return dict(states[worker])
    return state_of_partitions(partitions, states)


def state_of_partitions(
    partitions: Sequence[int], states: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a state from which a stream over `partitions` can resume.

    The counts of all partitions become part of the state of the worker that reads the first
    partition.

    Args:
        partitions: the partitions in ascending order.
        states: states of any number of earlier workers.

    Raises:
        ValueError: a partition is in none of the states; or a partition moves to another worker,
            and the states cannot be merged.
    """
    merged = merged_state(states)
    if list(merged["partitions"]) == list(partitions):
        return merged
    _check_mergeable([merged])
    if not set(partitions) <= set(merged["partitions"]):
        raise ValueError(
            f"partitions must be among the state's partitions, {merged['partitions']}, got "
            f"{list(partitions)}"
        )
    kept = {str(p) for p in partitions}
    order = merged["order"]
    begun = {p: rows for p, rows in _begun(order).items() if p in kept}
    has_turn = order["turn_of"] in partitions
    turn_of = order["turn_of"] if has_turn else partitions[0]
    counts_all = partitions[0] == merged["partitions"][0]
    counts = {name: order.get(name, 0) if counts_all else 0 for name in _COUNTS}
    return {
        **merged,
        "partitions": list(partitions),
        "rows": merged["rows"] if counts_all else 0,
        "dead": merged["dead"] if counts_all else {},
        "dead_share": None,
        "order": {
            "offsets": _only(order["offsets"], kept),
            "turn_of": turn_of,
            "row": begun.pop(str(turn_of), 0),
            "rows": begun,
            "idle": [p for p in order["idle"] if p in partitions],
            "used": order["used"] if has_turn else 0,
            **counts,
            "sequences": _only(order["sequences"], kept),
            **_named("epochs", _only(order.get("epochs", {}), kept)),
            **_named("outdated", order.get("outdated", 0) if counts_all else 0),
        },
    }


def with_partitions(state: Mapping[str, Any], offsets: Mapping[int, int]) -> dict[str, Any]:
    """Add partitions to a copy of a state. The partitions begin at `offsets` and take turns.

    Args:
        state: state of a `StreamSource`.
        offsets: for each new partition, the offset of its first message.
    """
    order = state["order"]
    begins = {str(p): offset for p, offset in offsets.items()}
    return {
        **state,
        "partitions": sorted([*state["partitions"], *offsets]),
        "order": {**order, "offsets": {**order["offsets"], **begins}},
    }


_COUNTS = ("taken", "duplicates", "missing")


def _check_mergeable(states: Sequence[Mapping[str, Any]]) -> None:
    topics = {state["topic"] for state in states}
    if len(topics) > 1:
        raise ValueError(f"states must be of one topic, got {sorted(topics)}")
    partitions = [p for state in states for p in state["partitions"]]
    if len(set(partitions)) < len(partitions):
        raise ValueError(f"states must be of different partitions, got {sorted(partitions)}")
    ids = {state["topic_id"] for state in states if state.get("topic_id") is not None}
    if len(ids) > 1:
        raise ValueError(
            f"states must be of one topic {states[0]['topic']!r}, and are of two of this name, one "
            f"made after the other: {sorted(ids)}"
        )
    # States cannot be merged if the stream made decisions other than "add", because only the
    # journal contains these decisions.
    if any(state["decisions"] > state.get("decisions_added", 0) for state in states):
        raise ValueError(
            "skip_idle_seconds and max_wait_seconds have decided what batches are, and their "
            "journal is of the partitions as they were: go on with as many workers as before"
        )


def _begun(order: Mapping[str, Any]) -> dict[str, int]:
    begun = {str(p): int(rows) for p, rows in order.get("rows", {}).items()}
    if order["row"]:
        begun[str(order["turn_of"])] = int(order["row"])
    return begun


def _union(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _named(name: str, value: Any) -> dict[str, Any]:
    """Return `{name: value}`; an empty dict if the value is zero or empty."""
    return {name: value} if value else {}


def _only(values: Mapping[str, Any], kept: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in kept}


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def _least(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = set.intersection(*(set(part) for part in parts))
    return {name: min(part[name] for part in parts) for name in sorted(names)}
