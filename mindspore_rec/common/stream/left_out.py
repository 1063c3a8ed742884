# SPDX-License-Identifier: Apache-2.0
"""LeftOut: report skipped messages, and messages that the log removed before they were read."""

from __future__ import annotations

import logging

from mindspore_rec.common.stream.interleave import Interleaver, Sequence

__all__ = ["LeftOut"]

logger = logging.getLogger("mindspore_rec")


class LeftOut:
    """Report messages that the log removed before a read, and messages of replaced senders.

    A warning is logged each time the number of reported messages has doubled.

    Args:
        on_missing: reaction to messages that the log removed: "warn" for a warning, "stop" for an
            error.
        topic: name of the stream's topic.

    Example:
        >>> order = Interleaver([0], 1)
        >>> LeftOut("stop", "clicks").watch(order)
        >>> order.on_missing(0, 7, 2)
        Traceback (most recent call last):
        ...
        LookupError: messages 5 to 6 of partition 0 of topic 'clicks', or 2 of those shortly before
        ...
    """

    def __init__(self, on_missing: str, topic: str) -> None:
        self._on_missing = on_missing
        self._topic = topic
        self._missing_reported = self._outdated_reported = 0

    def watch(self, order: Interleaver) -> None:
        """Report the messages that an interleaver skips."""

        def report_missing(partition: int, offset: int, count: int) -> None:
            self._report_missing(partition, offset, count, order.missing)

        def report_outdated(partition: int, sequence: Sequence) -> None:
            self._report_outdated(partition, sequence, order.outdated)

        order.on_missing, order.on_outdated = report_missing, report_outdated

    def _report_missing(self, partition: int, offset: int, count: int, total: int) -> None:
        text = (
            f"messages {offset - count} to {offset - 1} of partition {partition} of topic "
            f"{self._topic!r}, or {count} of those shortly before {offset}, were removed before "
            "they were read, as compaction does: topics of events need cleanup.policy=delete"
        )
        if self._on_missing == "stop":
            raise LookupError(text)
        if total >= 2 * self._missing_reported:
            logger.warning("%s; %d in all", text, total)
            self._missing_reported = total

    def _report_outdated(self, partition: int, sequence: Sequence, total: int) -> None:
        if total >= 2 * self._outdated_reported:
            logger.warning(
                "messages of sender %r in partition %d of topic %r are ignored, %d in all: another "
                "worker of that name has taken over",
                sequence.producer, partition, self._topic, total,
            )  # fmt: skip
            self._outdated_reported = total
