# SPDX-License-Identifier: Apache-2.0
"""Check the arguments of a `StreamSource`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.stream.limits import StreamLimits
from mindspore_rec.common.stream.topic_watch import check_same_topic

__all__ = [
    "STATE_VERSION",
    "check_columns",
    "check_partitions",
    "check_start",
    "check_state",
]

STATE_VERSION = 1


def check_partitions(wanted: Sequence[int] | None, there: list[int], topic: str) -> list[int]:
    """Check the partitions to read, and return the partitions in ascending order."""
    if wanted is None:
        return there
    chosen = sorted(check_int("partitions", p, 0, 1 << 31) for p in wanted)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(there):
        raise ValueError(
            f"partitions must be distinct ones of {there}, which topic {topic!r} has, got {wanted}"
        )
    return chosen


def check_start(start: Any, partitions: list[int]) -> Any:
    """Check and return the argument `start`."""
    if isinstance(start, Mapping):
        if sorted(start) != partitions:
            raise ValueError(f"start must have an offset for each of {partitions}, got {start}")
        return {p: check_int("start", start[p], 0, (1 << 63) - 1) for p in partitions}
    if start not in ("earliest", "latest"):
        raise ValueError(
            f"start must be 'earliest', 'latest' or offsets by partition, got {start!r}"
        )
    return start


def check_columns(limits: StreamLimits, event_time: Any, schema: pa.Schema | None) -> None:
    """Check that a schema has the event-time column and the columns in `limits.value_ranges`."""
    numbers = [] if schema is None else [field.name for field in schema if _is_number(field.type)]
    for name in limits.value_ranges:
        if name not in numbers:
            raise ValueError(
                f"value_ranges must be of columns of numbers of the schema, {numbers}, got {name!r}"
            )
    if event_time is None:
        if limits.max_future_seconds is not None:
            raise ValueError("max_future_seconds needs event_time, the column with the time")
        return
    if not isinstance(event_time, str):
        raise TypeError(f"event_time must be a column's name, got {event_time!r}")
    if schema is None:
        raise ValueError("event_time needs a format with a schema that has that column")
    if event_time not in schema.names or not _is_time(schema.field(event_time).type):
        raise ValueError(
            f"event_time must be a column of numbers or timestamps of {schema.names}, "
            f"got {event_time!r}"
        )


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or _is_number(kind)


def check_state(state: Any, topic: str, partitions: list[int], topic_id: str | None = None) -> None:
    """Check that a stream can resume from a state.

    Args:
        state: the saved state of a stream.
        topic: name of the stream's topic.
        partitions: the partitions to read. `state` may lack partitions that are new in the topic.
        topic_id: id of the present topic; None if the id is not checked.

    Raises:
        TypeError: `state` is not the state of a stream.
        ValueError: `state` is of a different topic or version, or contains partitions that are not
            read.
        LookupError: the topic was deleted and made again.
    """
    if not isinstance(state, Mapping) or "version" not in state or "order" not in state:
        raise TypeError(f"state must be what state_dict() returned, got {type(state).__name__}")
    if state["version"] != STATE_VERSION:
        raise ValueError(f"state must be of version {STATE_VERSION}, got {state['version']}")
    if state["topic"] != topic or not set(state["partitions"]) <= set(partitions):
        raise ValueError(
            f"state must be of topic {topic!r}, partitions {partitions}; it is of topic "
            f"{state['topic']!r}, partitions {state['partitions']}"
        )
    check_same_topic(topic, state.get("topic_id"), topic_id)
