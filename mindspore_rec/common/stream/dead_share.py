# SPDX-License-Identifier: Apache-2.0
"""DeadShare: if too many of a stream's last messages are bad, stop the stream or warn."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy

__all__ = ["DeadShare", "TooManyDeadLettersError"]

logger = logging.getLogger("mindspore_rec")

_PARTS = 10


class TooManyDeadLettersError(RuntimeError):
    """Raised if too many of a stream's last messages are bad."""


class DeadShare:
    """Counts good and bad messages in the order in which the stream reads the messages.

    The share of bad messages is checked after every `dead_share_messages` / 10 messages. The first
    check is after `dead_share_messages` messages, so a few bad messages at the beginning do not
    matter. The counts are part of the stream's state.

    Args:
        policy: maximum share of bad messages, and the reaction if the share is exceeded.
        topic: name of the topic, for the error message.

    Example:
        >>> share = DeadShare(DeadLetterPolicy(dead_share_messages=10), "clicks")
        >>> share.good(4)
        >>> for _ in range(5):
        ...     share.bad("schema", "column 'x' is missing")
        >>> try:
        ...     share.bad("schema", "column 'x' is missing")
        ... except TooManyDeadLettersError as error:
        ...     print(str(error).partition(", ")[0])
        6 of the last 10 messages of topic 'clicks' are bad
    """

    def __init__(self, policy: DeadLetterPolicy, topic: str) -> None:
        self._most = policy.max_dead_share
        self._then = policy.on_dead_share
        self._part = policy.dead_share_messages // _PARTS
        self._topic = topic
        self._full: list[dict[str, Any]] = []  # the last parts, at most a window
        self._good = 0
        self._bad: Counter[str] = Counter()
        self._warned = False

    def good(self, count: int) -> None:
        """Count good messages."""
        while count:
            some = min(count, self._part - self._good - self._bad.total())
            self._good += some
            count -= some
            self._look()

    def bad(self, reason: str, detail: str) -> None:
        """Count a bad message. Raise TooManyDeadLettersError if too many messages are bad."""
        # Every message may have a different detail, for example if details contain offsets. After
        # 20 different details, a message with a new detail is counted under its reason, without the
        # detail.
        kind = f"{reason}: {detail}"
        self._bad[kind if kind in self._bad or len(self._bad) < 20 else reason] += 1
        self._look()

    def _look(self) -> None:
        if self._good + self._bad.total() < self._part:
            return
        self._full = [*self._full, {"good": self._good, "bad": dict(self._bad)}][-_PARTS:]
        self._good, self._bad = 0, Counter()
        if len(self._full) < _PARTS:
            return
        bad: Counter[str] = sum((Counter(part["bad"]) for part in self._full), Counter())
        seen = self._part * _PARTS
        if bad.total() <= self._most * seen:
            self._warned = False
            return
        text = (
            f"{bad.total()} of the last {seen} messages of topic {self._topic!r} are bad, most for "
            f"'{_commonest(bad)}'"
        )
        if self._then == "stop":
            raise TooManyDeadLettersError(
                f"{text}; they are in the dead-letter topic. Mend what writes them; to read over "
                'those that are there, set on_dead_share="warn" or a greater max_dead_share than '
                f"{self._most:g}"
            )
        if not self._warned:
            logger.warning("%s", text)
        self._warned = True

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {"full": list(self._full), "good": self._good, "bad": dict(self._bad)}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore counts. If `state` is None, as in states of older versions, reset the counts."""
        state = state or {"full": [], "good": 0, "bad": {}}
        sizes = [part["good"] + sum(part["bad"].values()) for part in state["full"]]
        if any(size != self._part for size in sizes):  # another window: it begins anew
            state = {"full": [], "good": 0, "bad": {}}
        self._full = list(state["full"])
        self._good, self._bad = int(state["good"]), Counter(state["bad"])
        if self._good + self._bad.total() >= self._part:
            self._good, self._bad = 0, Counter()


def _commonest(bad: Counter[str]) -> str:
    kind, times = bad.most_common(1)[0]
    reasons: Counter[str] = Counter()
    for each, count in bad.items():
        reasons[each.partition(":")[0]] += count
    reason, together = reasons.most_common(1)[0]
    same = kind.partition(":")[0] == reason and 2 * times > together
    return kind if same else next(each for each in bad if each.partition(":")[0] == reason)
