# SPDX-License-Identifier: Apache-2.0
"""Interface of clients that read and write message logs, such as Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["LogClient", "LogProducer", "Message"]

Headers = Sequence[tuple[str, bytes]]


class Message(NamedTuple):
    """Message of a partition.

    Args:
        offset: position of the message in the partition. Offsets ascend from message to message,
            possibly with gaps.
        timestamp: time of the message in the log, in milliseconds since 1970; -1 if the time is
            unknown.
        value: the bytes; None for a message without a value.
        headers: names and bytes of the message's headers.
        key: the bytes of the message's key, or None.
        skipped: number of skipped offsets directly before the message. Skipped offsets belong to
            transaction markers or to messages of aborted transactions. Missing offsets that are not
            counted in `skipped` belong to messages that the log has removed.
    """

    offset: int
    timestamp: int
    value: bytes | None
    headers: Headers = ()
    key: bytes | None = None
    skipped: int = 0


class LogClient(Protocol):
    """Reader of a topic's partitions from offsets that the caller chooses.

    Only one thread may use a client at a time. If the log cannot be reached for a while, the client
    waits. If messages are lost permanently, the client raises an error.
    """

    topic: str

    def partitions(self) -> list[int]:
        """Return the topic's partitions in ascending order."""

    def topic_id(self) -> str | None:
        """Return the topic's id, or None. A later topic of the same name has a different id.

        A client without the method `topic_id` is treated as if `topic_id` returned None.
        """

    def bounds(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return each partition's first offset, and the offset after its last message."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read only the partitions in `offsets`, each from its offset on."""

    def poll(self, seconds: float, paused: Sequence[int]) -> dict[int, list[Message]]:
        """Return a dict from partition to new messages, in order.

        Wait up to `seconds` if there are no messages. Messages of a paused partition are returned
        later.
        """

    def position(self, partition: int) -> int:
        """Return the offset at which the next poll continues, without a request to the log.

        If entries that are not messages, such as transaction markers, follow the last message, the
        offset may lie after these entries.
        """

    def ends(self) -> dict[int, int]:
        """Return the last known end offset of each partition, without a request to the log."""

    def close(self) -> None:
        """Release connections."""


class LogProducer(Protocol):
    """Writer that appends messages to a log. Any thread may use the writer."""

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes,
        headers: Headers = (),
        key: bytes | None = None,
    ) -> None:
        """Queue a message, or raise the error of an earlier message."""

    def flush(self) -> None:
        """Wait until every queued message is in the log. Raise an error if a message was lost."""

    def close(self) -> None:
        """Flush, and release connections and threads."""
