# SPDX-License-Identifier: Apache-2.0
"""DeadLetterPolicy: where the bad messages of a stream go, and how many are too many."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.stream.dead_letters import DeadLetters

__all__ = ["DeadLetterPolicy", "policy_of"]


@dataclass(frozen=True)
class DeadLetterPolicy:
    """Destination of a stream's bad messages, and the share of them that is too many.

    If many of the last messages are bad, upstream has changed, it is likely, and the training
    starves. A restart stops there again, until "warn" or a greater share lets it by.

    Args:
        topic: where bad messages go: for a `KafkaSource` or a `DataReceiver` the name of a topic,
            for a `StreamSource` the `DeadLetters` of one. Default: None, the first bad message is
            an error.
        max_dead_share: more dead letters than this share of the last `dead_share_messages` are too
            many, in (0, 1]; 1 is no limit (default 0.5).
        on_dead_share: what happens then: "stop", a `TooManyDeadLettersError` with the commonest
            reason; or "warn", a warning in the log (default "stop").
        dead_share_messages: at least 10; fewer messages in all are never too many (default 1000).

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    The name is of Pulsar's and Pub/Sub's clients.

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
    """Return what a stream does with bad messages: a policy, or the policy of a topic alone.

    Example:
        >>> policy_of("clicks-dead").topic
        'clicks-dead'
    """
    if isinstance(dead_letters, DeadLetterPolicy):
        return dead_letters
    return DeadLetterPolicy(dead_letters)
