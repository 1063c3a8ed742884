# SPDX-License-Identifier: Apache-2.0
"""A stream counts and waits as plain models do, also through restarts."""

from __future__ import annotations

import json
import logging
import math
import re
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.stream.dead_share import DeadShare
from mindspore_rec.common.stream.patience import Patience
from mindspore_rec.common.stream.progress import Progress
from mindspore_rec.stream import (
    DeadLetterPolicy,
    StopWhen,
    StreamLimits,
    TooManyDeadLettersError,
)

SAME_EACH_TIME = settings(derandomize=True, max_examples=200)


# ---- the share of bad messages


def model_of_shares(
    bad: list[bool], restarts: set[int], window: int, most: float
) -> dict[int, tuple[int, bool]]:
    """Return the bad messages of each window that is refused, by the number of messages before.

    A window ends after every tenth of its messages. A bool tells if a warning is due: not if the
    window before was refused in the same life.
    """
    refused: dict[int, tuple[int, bool]] = {}
    part = window // 10
    window, warned = 10 * part, False
    for end in range(part, len(bad) + 1, part):
        warned = warned and not restarts & set(range(end - part, end))
        count = sum(bad[end - window : end]) if end >= window else 0
        if end < window:
            continue
        if count > most * window:
            refused[end] = count, not warned
        warned = count > most * window
    return refused


@SAME_EACH_TIME
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 25)), max_size=25),
    st.sets(st.integers(0, 300)),
    st.sampled_from([10, 19, 20, 30, 60]),
    st.sampled_from([0.1, 0.35, 0.5, 0.9, 1.0]),
)
def test_any_share_of_bad_messages(
    runs: list[tuple[bool, int]], restarts: set[int], window: int, most: float
) -> None:
    """It stops, or warns, after the same messages as a plain model, whenever it restarts."""
    bad = [each for each, count in runs for _ in range(count)]
    refused = model_of_shares(bad, restarts, window, most)
    warnings = {end: count for end, (count, due) in refused.items() if due}
    assert texts_of_shares(bad, restarts, DeadLetterPolicy(None, most, "warn", window)) == warnings
    errors = {end: refused[end][0] for end in sorted(refused)[:1]}
    assert texts_of_shares(bad, restarts, DeadLetterPolicy(None, most, "stop", window)) == errors


def texts_of_shares(
    bad: list[bool], restarts: set[int], policy: DeadLetterPolicy
) -> dict[int, int]:
    """Return how many messages were bad in each warning or error, by the messages before."""
    window = policy.dead_share_messages // 10 * 10
    pattern = re.compile(rf"(\d+) of the last {window} messages of topic 'clicks' are bad")
    share, at, texts = DeadShare(policy, "clicks"), 0, dict[int, int]()

    def note(_: str, text: str) -> None:
        (texts[at],) = map(int, pattern.findall(text))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("mindspore_rec"), "warning", note)
        while at < len(bad):
            if at in restarts:
                state = json.loads(json.dumps(share.state_dict()))
                share = DeadShare(policy, "clicks")
                share.load_state_dict(state)
            at += 1
            try:
                share.bad("schema", f"column {at}") if bad[at - 1] else share.good(1)
            except TooManyDeadLettersError as error:
                note("", str(error))
                break
    return texts


@SAME_EACH_TIME
@given(st.lists(st.integers(0, 70), max_size=12), st.sampled_from([10, 30, 60]))
def test_good_messages_count_alike_one_by_one_and_together(counts: list[int], window: int) -> None:
    policy = DeadLetterPolicy(None, 1.0, "stop", window)
    one, many = DeadShare(policy, "t"), DeadShare(policy, "t")
    for count in counts:
        many.good(count)
        for _ in range(count):
            one.good(1)
        for share in (one, many):
            share.bad("schema", "")
        assert one.state_dict() == many.state_dict()


# ---- batches, rows and event times


TIMES = st.sampled_from([None, -7.5, 0.0, 0.0, 0.999, 1.0, 7.9])


@SAME_EACH_TIME
@given(st.lists(st.lists(TIMES, min_size=1, max_size=4), max_size=8), st.sets(st.integers(0, 8)))
def test_any_progress(batches: list[list[float | None]], restarts: set[int]) -> None:
    progress, begun = Progress("t"), 0
    progress.begin()
    for number, times in enumerate(batches):
        if number in restarts:
            state = json.loads(json.dumps(progress.state_dict()))
            progress, begun = Progress("t"), number
            progress.load_state_dict(state)
            progress.begin()
        progress.count(pa.record_batch({"t": pa.array(times, pa.float64())}))
        so_far = batches[: number + 1]
        latest = [max(-math.inf if t is None else t for t in each) for each in so_far]
        assert progress.watermark == max(latest)
        assert progress.event_time == (int(latest[-1]) if latest[-1] >= 1 else None)
        assert progress.batches == number + 1
        assert progress.batches_of_run == number + 1 - begun
        assert progress.rows == sum(map(len, so_far))


# ---- waiting


class Event(NamedTuple):
    """Event that a stream reports to its timer.

    Args:
        kind: "rows", "message", "batch" or "look".
        gap: eighths of a second since the event before.
        unseen: of a look, eighths of a second since the newest poll began.
        may_decide: of a look.
        current: of a look.
        others: of a look.
    """

    kind: str
    gap: int
    unseen: int
    may_decide: bool
    current: int | None
    others: bool


EVENTS = st.builds(
    Event,
    st.sampled_from(["rows", "message", "batch", "look", "look", "look"]),
    st.sampled_from([0, 1, 3, 4, 8]),
    st.sampled_from([0, 0, 1, 9]),
    st.sampled_from([True, True, False]),
    st.sampled_from([0, 0, 1, None]),
    st.booleans(),
)
SECONDS = st.sampled_from([None, 0.5, 1.0, 1.5])


class PlainTimer:
    """Finds what is due in the list of all that has happened."""

    def __init__(self, limits: StreamLimits, stop: StopWhen) -> None:
        self.limits, self.stop = limits, stop
        self.past: list[tuple[float, Event]] = []

    def _since(self, kind: str) -> list[tuple[float, Event]]:
        places = [i for i, (_, event) in enumerate(self.past) if event.kind == kind]
        return self.past[places[-1] + 1 if places else 0 :]

    def dues(self, now: float, looked: float, event: Event) -> list[tuple[float, str, str]]:
        """Return when what is due: the time, the kind and the reason, the first to decide first."""
        limits, stop = self.limits, self.stop
        rows = [time for time, each in self._since("batch") if each.kind == "rows"]
        all_rows = [time for time, each in self.past if each.kind == "rows"]
        dues = []
        if limits.max_wait_seconds is not None and event.may_decide and rows:
            dues.append((rows[0] + limits.max_wait_seconds, "cut", ""))
        if limits.skip_idle_seconds is not None and self._waits(event):
            waits = [
                time
                for time, each in self._since("message")
                if each.kind == "look" and self._waits(each) and each.current == event.current
            ]
            dues.append((min([*waits, now]) + limits.skip_idle_seconds, "leave", ""))
        if stop.seconds is not None:
            dues.append((stop.seconds, "end", f"{stop.seconds} seconds"))
        if stop.idle_seconds is not None:
            last = max([0.0, *all_rows]) + now - looked
            kind = "cut" if rows and event.may_decide else "end"
            dues.append((last + stop.idle_seconds, kind, f"idle for {stop.idle_seconds} seconds"))
        return dues

    def _waits(self, event: Event) -> bool:
        return event.may_decide and event.others and event.current is not None


@SAME_EACH_TIME
@given(
    st.lists(EVENTS, max_size=25),
    st.builds(StreamLimits, skip_idle_seconds=SECONDS, max_wait_seconds=SECONDS),
    st.builds(StopWhen, seconds=st.sampled_from([None, 3.0]), idle_seconds=SECONDS),
)
def test_any_wait(events: list[Event], limits: StreamLimits, stop: StopWhen) -> None:
    """Nothing is decided before it is due, and no wait is longer than until something is due."""
    patience, plain = Patience(limits, stop), PlainTimer(limits, stop)
    began = now = 1000.0
    patience.begin(began)
    for event in events:
        now += event.gap / 8
        if event.kind == "rows":
            patience.rows_came(now)
        elif event.kind == "message":
            patience.message_came()
        elif event.kind == "batch":
            patience.batch_ended()
        else:
            looked = now - event.unseen / 8
            verdict = patience.look(now, looked, event.may_decide, event.current, event.others)
            dues = plain.dues(now - began, looked - began, event)
            due = [(kind, reason) for time, kind, reason in dues if time <= now - began]
            if due:
                assert verdict == (*due[0], 0.0)
                if due[0] == ("cut", ""):
                    event = event._replace(kind="cut")  # it waits for no partition
            else:
                idle = [t for t, _, reason in dues if reason.startswith("idle")]
                times = [t for t, _, reason in dues if not reason.startswith("idle")]
                times += [max(t, now - began + 0.02) for t in idle]
                wait = min([0.2, *(t - (now - began) for t in times)])
                assert verdict[:2] == ("wait", "")
                assert verdict.seconds == pytest.approx(max(wait, 0.001))
        plain.past.append((now - began, event))
        ended = stop.seconds is not None and now - began >= stop.seconds
        reason = patience.reason_to_end(now, 0, None)
        assert reason == (f"{stop.seconds} seconds" if ended else "")


@SAME_EACH_TIME
@given(
    st.builds(
        StopWhen,
        batches=st.sampled_from([None, 1, 3]),
        seconds=st.sampled_from([None, 2.0]),
        watermark=st.sampled_from([None, -1.0, 0.0, 5.0]),
    ),
    st.integers(0, 4),
    st.sampled_from([0.0, 1.875, 2.0, 2.125]),
    st.sampled_from([None, -1.5, -1.0, 0.0, 4.5, 5.0]),
)
def test_any_end(stop: StopWhen, batches: int, seconds: float, watermark: float | None) -> None:
    reasons = [
        (stop.batches, batches, f"{batches} batches"),
        (stop.seconds, seconds, f"{stop.seconds} seconds"),
        (stop.watermark, watermark, f"watermark {stop.watermark}"),
    ]
    met = [text for limit, value, text in reasons if None not in (limit, value) and value >= limit]  # type: ignore[operator]
    assert stop.before(batches, seconds, watermark) == (met[0] if met else "")
