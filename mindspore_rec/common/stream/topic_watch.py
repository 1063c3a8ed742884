# SPDX-License-Identifier: Apache-2.0
"""TopicWatch: detect that a topic has new partitions, or was deleted and made again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from mindspore_rec.common.stream.client import LogClient

__all__ = ["LOOK_SECONDS", "TopicWatch", "check_same_topic", "topic_id"]

logger = logging.getLogger("mindspore_rec")

LOOK_SECONDS = 2.0  # between two looks; a look is no request if nothing has changed


class TopicWatch:
    """Object that detects changes of a topic, for the thread that reads the topic.

    Args:
        client: client that reads the topic.
        wanted: function that takes all partitions of the topic and returns the partitions to read;
            None if the partitions are fixed.
        known: the topic's id when reading began; None without an id.
        read_soon: True if this run reads new partitions. If False, new partitions are read only
            after a restart.
    """

    def __init__(
        self,
        client: LogClient,
        wanted: Callable[[list[int]], list[int]] | None,
        known: str | None,
        read_soon: bool,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._known = known
        self._read_soon = read_soon
        self._next_look = time.monotonic() + LOOK_SECONDS

    def new_partitions(self, known: Collection[int]) -> list[int]:
        """Return new partitions to read. The topic is checked only every few seconds.

        Raises:
            LookupError: the topic was deleted and made again.
        """
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            there = self._client.partitions()
        except ValueError:  # the topic is not there at the moment
            return []
        check_same_topic(self._client.topic, self._known, topic_id(self._client))
        if self._wanted is None:
            return []
        new = [p for p in self._wanted(there) if p not in known]
        if new:
            self.report(new)
        return new

    def report(self, partitions: Collection[int]) -> None:
        """Log that partitions were added to the topic after the stream began."""
        logger.warning(
            "topic %r has partitions %s, which it had not when this stream began: %s",
            self._client.topic,
            sorted(partitions),
            "each is read from its beginning, as soon as it has messages"
            if self._read_soon
            else "a restart reads each from its beginning, once it has messages; lag counts them",
        )


def topic_id(client: LogClient) -> str | None:
    """Return the id of a client's topic; None if the client has no id."""
    ask = getattr(client, "topic_id", None)  # clients of other logs may be older than it
    return None if ask is None else ask()


def check_same_topic(topic: str, before: str | None, now: str | None) -> None:
    """Raise LookupError if the old and the new id of a topic are known and differ.

    Args:
        topic: name of the topic.
        before: the old id of the topic; None if unknown.
        now: the new id of the topic; None if unknown.
    """
    if before is None or now is None or before == now:
        return
    raise LookupError(
        f"topic {topic!r} was deleted and made anew: messages were read of the one with the id "
        f"{before}, and now there is {now}, in which the saved offsets mean other messages. Begin "
        "at its start without the saved position: a training in a new run directory, with the rows "
        "and weights from mindspore_rec.load_checkpoint; a feature worker with a new state_path "
        "and sender_name"
    )
