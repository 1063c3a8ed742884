# SPDX-License-Identifier: Apache-2.0
"""Interface of a message log's client, which Kafka's and others implement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["LogClient", "LogProducer", "Message"]

Headers = Sequence[tuple[str, bytes]]


class Message(NamedTuple):
    """One message of a partition.

    Args:
        offset: its number in the partition; later messages have greater ones, with gaps possible.
        timestamp: milliseconds since 1970 that the log keeps of it; -1 is unknown.
        value: the bytes; None is a message without any.
        headers: names and bytes that came with it.
        key: the bytes of its key, or None.
        skipped: how many offsets just before it never were messages for a reader: the markers of
            transactions, and what aborted ones wrote where the reader leaves it out. Other offsets
            that are missing were messages that the log has removed.
    """

    offset: int
    timestamp: int
    value: bytes | None
    headers: Headers = ()
    key: bytes | None = None
    skipped: int = 0


class LogClient(Protocol):
    """Reads a topic's partitions from offsets that the caller chooses.

    One thread uses it at a time. A log that cannot be reached for a while is waited for; messages
    that are gone for good are an error.
    """

    topic: str

    def partitions(self) -> list[int]:
        """The topic's partitions, ascending."""

    def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """By partition the offset of the first message kept, and the one after the last."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Reads these partitions, and no others, from these offsets on."""

    def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
        """Return new messages by partition, in order; wait up to `seconds` if there are none.

        Messages of a paused partition are returned later.
        """

    def ends(self) -> dict[int, int]:
        """By partition the offset after the last message, as far as known without asking."""

    def close(self) -> None:
        """Releases what it holds."""


class LogProducer(Protocol):
    """Appends messages; any thread may use it."""

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes,
        headers: Headers = (),
        key: bytes | None = None,
    ) -> None:
        """Hands a message over; raises what went wrong with earlier ones."""

    def flush(self) -> None:
        """Returns when everything handed over is in the log; raises what went wrong."""

    def close(self) -> None:
        """Flushes and releases what it holds."""
