# SPDX-License-Identifier: Apache-2.0
"""StreamLimits: limits of a stream for the sizes of messages, for waits, and for reading ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.common.checks import check_int, check_number, check_one_of

__all__ = ["StreamLimits", "limits_of"]

_MOST = (1 << 62) - 1


@dataclass(frozen=True, kw_only=True)
class StreamLimits:
    """Limits of a stream for the sizes of messages, for waits, and for reading ahead.

    Args:
        max_message_bytes: maximum size of a message, 1 to 2**31 (default 4 MiB). A larger message
            is bad.
        value_ranges: for each column of numbers, the least and the greatest legal value, as in
            ``{"click": (0, 1)}``. A message with a value outside the range, or with NaN, is bad.
            Default: no ranges. If `value_ranges` is set, the stream's format needs a schema that
            contains the columns in `value_ranges`.
        max_future_seconds: number of seconds, at least 0, by which an event may be later than the
            timestamp of its message. A message with an event that is more than `max_future_seconds`
            later than the message's timestamp is bad. Default: None, which means no limit. A stream
            with `max_future_seconds` needs `event_time`.
        turn_messages: number of messages of a partition's turn, at least 1. Default: None, which
            means 256 for a `KafkaSource` that reads lines, and 1 for all other sources.
        skip_idle_seconds: maximum seconds, above 0, for which the stream waits for a partition that
            has no messages. After `skip_idle_seconds`, the stream continues without the partition
            until the partition has messages again. Default: None, which means to wait forever.
        max_wait_seconds: maximum seconds, above 0, for which rows wait until a batch is full.
            Default: None, which means to wait forever. `skip_idle_seconds` and `max_wait_seconds`
            do not end a wait for a message that was in the topic when reading began.
        buffer_bytes: bytes of messages to read ahead, at least 1 (default 64 MiB). All partitions
            have equal shares of `buffer_bytes`. If a partition's waiting messages take more than
            the partition's share, reading from the partition pauses until half of the share is
            free. For `buffer_bytes`, the size of a message is its stored size or its decoded size,
            whichever is greater.
        on_missing: reaction if messages are missing in the middle of a partition, for example
            because of compaction. "warn" (the default) writes a warning to the log each time the
            number of missing messages has doubled. "stop" raises a LookupError.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> StreamLimits(max_wait_seconds=2, value_ranges={"click": (0, 1)}).value_ranges
        {'click': (0.0, 1.0)}
        >>> StreamLimits(buffer_bytes=0)
        Traceback (most recent call last):
        ...
        ValueError: buffer_bytes must be in [1, 4611686018427387903], got 0
    """

    max_message_bytes: int = 4 << 20
    value_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    max_future_seconds: float | None = None
    turn_messages: int | None = None
    skip_idle_seconds: float | None = None
    max_wait_seconds: float | None = None
    buffer_bytes: int = 64 << 20
    on_missing: str = "warn"

    def __post_init__(self) -> None:
        turn, most = self.turn_messages, self.max_message_bytes
        checked = {
            "turn_messages": None if turn is None else check_int("turn_messages", turn, 1, _MOST),
            "buffer_bytes": check_int("buffer_bytes", self.buffer_bytes, 1, _MOST),
            "max_message_bytes": check_int("max_message_bytes", most, 1, 1 << 31),
            "on_missing": check_one_of("on_missing", self.on_missing, ("warn", "stop")),
            "value_ranges": _ranges(self.value_ranges),
            "max_future_seconds": _future(self.max_future_seconds),
            "skip_idle_seconds": _seconds("skip_idle_seconds", self.skip_idle_seconds),
            "max_wait_seconds": _seconds("max_wait_seconds", self.max_wait_seconds),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def limits_of(limits: StreamLimits | None) -> StreamLimits:
    """Return `limits`; for None, return the default limits.

    Raises:
        TypeError: `limits` is neither a StreamLimits nor None.

    Example:
        >>> limits_of(None) == StreamLimits()
        True
    """
    if limits is not None and not isinstance(limits, StreamLimits):
        raise TypeError(f"limits must be a StreamLimits, got {type(limits).__name__}")
    return StreamLimits() if limits is None else limits


def _seconds(argument: str, value: Any) -> float | None:
    if value is None:
        return None
    seconds = check_number(argument, value)
    if seconds <= 0:
        raise ValueError(f"{argument} must be above 0, got {value}")
    return seconds


def _future(value: Any) -> float | None:
    if value is None:
        return None
    seconds = check_number("max_future_seconds", value)
    if seconds < 0:
        raise ValueError(f"max_future_seconds must be at least 0, got {value}")
    return seconds


def _ranges(ranges: Any) -> dict[str, tuple[float, float]]:
    if ranges is None:
        return {}
    if not isinstance(ranges, Mapping):
        raise TypeError(f"value_ranges must be a dict of (least, greatest), got {ranges!r}")
    checked = {}
    for name, limits in ranges.items():
        pair = isinstance(limits, Sequence) and len(limits) == 2
        if not pair or not all(isinstance(value, (int, float)) for value in limits):
            raise TypeError(f"value_ranges[{name!r}] must be (least, greatest), got {limits!r}")
        if not limits[0] <= limits[1]:  # NaN too
            raise ValueError(f"value_ranges[{name!r}] must be ascending, got {limits!r}")
        checked[name] = (float(limits[0]), float(limits[1]))
    return checked
