# SPDX-License-Identifier: Apache-2.0
"""BadMessages: count bad messages by reason, and send the messages to the dead-letter topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy
from mindspore_rec.common.stream.dead_letters import DeadLetters
from mindspore_rec.common.stream.dead_share import DeadShare, TooManyDeadLettersError
from mindspore_rec.common.stream.interleave import BadEntry, Interleaver

__all__ = ["BadMessages"]


class BadMessages:
    """Object that counts a stream's bad messages and sends them to the dead-letter topic.

    Args:
        policy: the dead-letter topic, and the maximum share of bad messages.
        topic: name of the stream's topic.

    Attributes:
        sends: True if bad messages are sent to the dead-letter topic. Bad messages are counted even
            if `sends` is False.

    Raises:
        TypeError: `policy.topic` is the name of a topic instead of a `DeadLetters`.

    Example:
        >>> from mindspore_rec.common.stream.formats import BadMessageError
        >>> from mindspore_rec.common.stream.memory import MemoryTopic
        >>> dead = MemoryTopic()
        >>> policy = DeadLetterPolicy(DeadLetters(dead.producer(), "dead"))
        >>> bad = BadMessages(policy, "clicks")
        >>> bad.take(0, BadEntry(7, 0, BadMessageError("empty", "no bytes"), b"", 0))
        >>> [message.key for message in dead.messages()], bad.state_dict(True)["dead"]
        ([b'clicks/0/7'], {'empty': 1})
    """

    def __init__(self, policy: DeadLetterPolicy, topic: str) -> None:
        letters = policy.topic
        if isinstance(letters, str):
            raise TypeError(f"dead_letters must be a DeadLetters, got the name {letters!r}")
        self.sends = True
        self._letters: DeadLetters | None = letters
        self._topic = topic
        self._share = DeadShare(policy, topic)
        self._counts: dict[str, int] = {}  # by reason
        self._marks: dict[str, int] | None = None  # of an earlier run

    def watch(self, order: Interleaver) -> None:
        """Count all messages that an interleaver returns from now on."""
        order.on_bad = self.take
        order.on_good = self._share.good

    def take(self, partition: int, entry: BadEntry) -> None:
        """Count a bad message, and send the message to the dead-letter topic.

        Raises:
            ValueError: the policy has no dead-letter topic.
            TooManyDeadLettersError: too many of the last messages are bad.
        """
        if self._letters is None:
            raise ValueError(
                f"message {entry.offset} of partition {partition} of topic {self._topic!r} is bad "
                f"({entry.error}), and there is no dead-letter topic to put it in"
            )
        if self.sends:
            self._letters.send(self._topic, partition, entry)
        self._counts[entry.error.reason] = self._counts.get(entry.error.reason, 0) + 1
        try:
            self._share.bad(entry.error.reason, entry.error.detail)
        except TooManyDeadLettersError:
            self._letters.flush()
            raise

    def look_up(self, offsets: Mapping[int, int]) -> None:
        """Find which messages, from `offsets` on, are already in the dead-letter topic."""
        if self._letters is not None:
            self._letters.look_up(self._topic, offsets, self._marks)

    def flush(self) -> None:
        """Wait until all bad messages are in the dead-letter topic."""
        if self._letters is not None:
            self._letters.flush()

    def close(self) -> None:
        """Flush, and release connections and threads."""
        if self._letters is not None:
            self._letters.close()

    def state_dict(self, reading: bool) -> dict[str, Any]:
        """Return JSON values: the counts, and the offsets at which a later `look_up` starts.

        Args:
            reading: True if this run has read messages. If `reading` is True, the result contains
                this run's offsets; if False, the offsets of the loaded state.
        """
        marks = self._marks
        if reading and self._letters is not None:
            marks = dict(self._letters.marks)
        return {
            "dead": dict(self._counts),
            "dead_marks": marks,
            "dead_share": self._share.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that `state_dict` returned, in this version or in an older version."""
        self._counts = dict(state["dead"])
        self._marks = state["dead_marks"]
        self._share.load_state_dict(state.get("dead_share"))
