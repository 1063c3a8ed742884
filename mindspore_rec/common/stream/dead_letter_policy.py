# SPDX-License-Identifier: Apache-2.0
"""DeadLetterPolicy: the topic of a stream's bad messages, and the maximum share of bad messages."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.stream.dead_letters import DeadLetters

__all__ = ["DeadLetterPolicy", "policy_of"]


@dataclass(frozen=True)
class DeadLetterPolicy:
    """Topic of a stream's bad messages, and the maximum share of bad messages.

    If many messages are bad, the program that writes the topic has probably changed, and training
    receives too little data. If bad messages have stopped a stream, the stream stops at the same
    message again after a restart. To continue, set `on_dead_share` to "warn" or raise
    `max_dead_share`.

    Args:
        topic: topic for bad messages. A `KafkaSource` or `DataReceiver` needs the name of the
            topic, and a `StreamSource` needs a `DeadLetters`. Default: None, which means that the
            first bad message raises an error.
        max_dead_share: maximum share of dead letters in the last `dead_share_messages` messages, in
            (0, 1] (default 0.5). 1 means no limit.
        on_dead_share: the reaction if the share exceeds `max_dead_share`. "stop" (the default)
            raises a `TooManyDeadLettersError` with the commonest reason; "warn" writes a warning to
            the log.
        dead_share_messages: number of most recent messages from which the share is computed, at
            least 10. The share of bad messages is not checked before `dead_share_messages` messages
            have been read (default 1000).

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    The clients of Pulsar and Pub/Sub also use the name `DeadLetterPolicy`.

    Example:
        >>> DeadLetterPolicy("clicks-dead", max_dead_share=0.2).dead_share_messages
        1000
        >>> DeadLetterPolicy("clicks-dead", max_dead_share=0)
        Traceback (most recent call last):
        ...
        ValueError: max_dead_share must be in (0, 1], got 0
    """

    topic: str | DeadLetters | None = None
    max_dead_share: float = 0.5
    on_dead_share: str = "stop"
    dead_share_messages: int = 1000

    def __post_init__(self) -> None:
        share = check_number("max_dead_share", self.max_dead_share)
        if not 0 < share <= 1:
            raise ValueError(f"max_dead_share must be in (0, 1], got {self.max_dead_share}")
        messages = check_int("dead_share_messages", self.dead_share_messages, 10, 1 << 30)
        check_one_of("on_dead_share", self.on_dead_share, ("stop", "warn"))
        object.__setattr__(self, "max_dead_share", share)
        object.__setattr__(self, "dead_share_messages", messages)


def policy_of(dead_letters: DeadLetterPolicy | DeadLetters | str | None) -> DeadLetterPolicy:
    """Return `dead_letters` if it is a policy; otherwise, return a default policy for the topic.

    Example:
        >>> policy_of("clicks-dead").topic
        'clicks-dead'
    """
    if isinstance(dead_letters, DeadLetterPolicy):
        return dead_letters
    return DeadLetterPolicy(dead_letters)
