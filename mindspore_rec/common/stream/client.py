# SPDX-License-Identifier: Apache-2.0
"""Interface of a message log's client, which Kafka's and other clients implement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["LogClient", "LogProducer", "Message"]

Headers = Sequence[tuple[str, bytes]]


class Message(NamedTuple):
    """Message of a partition.

    Args:
        offset: its number in the partition; later messages have greater ones, with gaps possible.
        timestamp: milliseconds since 1970 that the log keeps of it; -1 is unknown.
        value: the bytes; None is a message without any.
        headers: names and bytes that came with it.
        key: the bytes of its key, or None.
        skipped: how many offsets just before it never were messages for a reader: the markers of
            transactions, and what aborted transactions wrote if the reader leaves it out. Other
            offsets that are missing were messages that the log has removed.
    """

    offset: int
    timestamp: int
    value: bytes | None
    headers: Headers = ()
    key: bytes | None = None
    skipped: int = 0


class LogClient(Protocol):
    """Reader of a topic's partitions from offsets that the caller chooses.

    One thread uses it at a time. A log that cannot be reached for a while is waited for; messages
    that are gone for good are an error.
    """

    topic: str

    def partitions(self) -> list[int]:
        """Return the topic's partitions in ascending order."""

    def topic_id(self) -> str | None:
        """Return what tells the topic from one of the same name that was made later, if anything.

        A client without this method is taken for one that does not know.
        """

    def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return by partition the offset of the first message kept, and the one after the last."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions, and no other partitions, from these offsets on."""

    def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
        """Return new messages by partition, in order; wait up to `seconds` if there are none.

        Messages of a paused partition are returned later.
        """

    def position(self, partition: int) -> int:
        """Return the offset from which the next poll reads on, without a request.

        It passes over what was no message, such as the marker of a transaction.
        """

    def ends(self) -> dict[int, int]:
        """Return the offset after the last message by partition, as known without a request."""

    def close(self) -> None:
        """Release connections."""


class LogProducer(Protocol):
    """Writer that appends messages; any thread may use it."""

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes,
        headers: Headers = (),
        key: bytes | None = None,
    ) -> None:
        """Queue a message; raise the error of an earlier message."""

    def flush(self) -> None:
        """Wait until every queued message is in the log; raise the error of any."""

    def close(self) -> None:
        """Flush, and release connections and threads."""
