# SPDX-License-Identifier: Apache-2.0
"""Decides from a recorded history whether the promises were kept, knowing nothing of the parts.

A history is a list of records, in the order of their times:

    {"what": "events", "keys": [[...], ...]}  the topic's events in their order, by partition, as
                                          read back at the end, and before the topic was deleted;
                                          each partition has keys of its own
    {"what": "sent", "count": 5000, "found": 5000}  how many the producer was told are in the topic,
                                          and how many different ones are
    {"what": "remade"}                    the topic was deleted and made anew
    {"what": "topic refused"}             a feature worker ended, as it read the topic of before
    {"what": "quiet", "step": 40}         no event comes; the step that is to be saved of those sent
    {"what": "resumed"}                   the predictors have had the time to answer by that step
    {"what": "start", "who": "one", "files": 12}   a predictor starts; the newest saved step
    {"what": "ended", "who": "trainer", "code": 1} a part ended that nobody had ended; one with
                                          "disk_full": true may, as it says that it cannot save
    {"what": "refused", "who": "one", "status": 500, "text": "..."}  not 503, an error of its own
    {"what": "files", "newest": 14}       the newest saved step, as seen after a new answer
    {"what": "answer", "who": "one", "version": 14, "rows": [[count, mark, weight], ...]}
    {"what": "trained", "counts": {"0": 71, ...}}  the trainer's rows at the end
    {"what": "last", "steps": 250}        the step of the last event
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Finding", "judge"]


@dataclass(frozen=True)
class Finding:
    """A promise that was not kept.

    Attributes:
        kind: 'mixed', an answer of several states; 'back', one of an older state than was answered
            before; 'unsaved', one of a state that no file has; 'other', one of a state that the
            events do not lead to; 'lost' and 'doubled', an event; 'behind', a predictor that never
            came to the last state, or not while no event came; 'ended', a part that ended by
            itself; 'refused', a request, or a topic that is the same.
        text: what was seen.
    """

    kind: str
    text: str


class _States:
    """States that the events lead to: of each partition the first so many, each once.

    Args:
        events: keys of all events, by partition in their order.
        keys: number of keys.
        batch: number of events of a step.
    """

    def __init__(self, events: Sequence[Sequence[int]], keys: int, batch: int) -> None:
        self._events = [np.asarray(each, np.int64) for each in events]
        self._batch = batch
        self._partition = np.zeros(keys, np.int64)  # of each key
        for partition, each in enumerate(self._events):
            self._partition[each] = partition
        self._seen: dict[int, tuple[int, ...]] = {}  # events of each partition, by step

    def wrong(self, step: int, counts: np.ndarray) -> str:
        """Return a description of errors in the counts per key after a step; '' without errors."""
        if counts.sum() != step * self._batch:
            return f"{counts.sum():g} events, these are not {step} steps"
        of = tuple(int(counts[self._partition == p].sum()) for p in range(len(self._events)))
        if any(of[p] > len(each) for p, each in enumerate(self._events)):
            return f"{of} events of the partitions, there were {[*map(len, self._events)]}"
        before = self._seen.setdefault(step, of)
        if before != of:
            return f"{of} events of the partitions, an answer by the same step {before}"
        want = np.zeros(len(counts), np.int64)
        for p, each in enumerate(self._events):
            want += np.bincount(each[: of[p]], minlength=len(counts))
        wrong = np.flatnonzero(counts != want)
        if not len(wrong):
            return ""
        key = wrong[0]
        return f"{counts[key]:g} events of key {key}, there were {want[key]}"

    def gone_back(self) -> list[str]:
        """Return which later steps have fewer events of a partition than earlier ones."""
        steps = sorted(self._seen)
        return [
            f"step {later} has {self._seen[later]} events of the partitions, step {step} had "
            f"{self._seen[step]}"
            for step, later in zip(steps, steps[1:], strict=False)
            if any(a > b for a, b in zip(self._seen[step], self._seen[later], strict=True))
        ]


def judge(history: Iterable[Mapping[str, Any]], keys: int, batch: int) -> list[Finding]:
    """Return the broken guarantees of a history; an empty list if it kept all guarantees.

    Args:
        history: records as above.
        keys: number of keys, which are 0 to `keys - 1`; each answer has a row of each.
        batch: number of events of a step.
    """
    records = list(history)
    events = _joined([r["keys"] for r in records if r["what"] == "events"])
    states = _States(events, keys, batch)
    found = _answers(records, states)
    found += [Finding("other", text) for text in states.gone_back()]
    found += [
        Finding("ended", f"{r['who']} ended by itself with code {r['code']}")
        for r in records
        if r["what"] == "ended" and not r.get("disk_full")
    ]
    found += [
        Finding("refused", f"{r['who']}: {r['status']} {r['text']:.200}")
        for r in records
        if r["what"] == "refused"
    ]
    return found + _refusals(records) + _quiet(records) + _once(records, events) + _last(records)


def _joined(topics: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """Return the events of each partition, of topics that were read one after the other."""
    partitions = max(map(len, topics))
    return [
        [key for topic in topics if p < len(topic) for key in topic[p]] for p in range(partitions)
    ]


def _answers(records: list[Mapping[str, Any]], states: _States) -> list[Finding]:
    found: list[Finding] = []
    newest: dict[str, int] = {}  # answered by a predictor
    unseen: list[tuple[str, int]] = []  # answers since the files were looked at
    for record in records:
        if record["what"] == "start":
            # It begins with what the files have, which is not older than what it has answered.
            newest[record["who"]] = max(record["files"], newest.get(record["who"], 0))
        elif record["what"] == "files":
            found += [
                Finding("unsaved", f"{who} answered by step {step}, files had {record['newest']}")
                for who, step in unseen
                if step > record["newest"]
            ]
            unseen = []
        elif record["what"] == "answer":
            who, step = record["who"], record["version"]
            if step < newest.get(who, 0):
                text = f"{who} answered by step {step} after step {newest[who]}"
                found.append(Finding("back", text))
            newest[who] = max(step, newest.get(who, 0))
            unseen.append((who, step))
            found += _whole(who, step, np.asarray(record["rows"]), states)
    return found


def _whole(who: str, step: int, rows: np.ndarray, states: _States) -> list[Finding]:
    marks = np.unique(rows[:, 1:])
    if marks.tolist() != [float(step)]:
        shown = ", ".join(f"{mark:g}" for mark in marks[:5])
        return [Finding("mixed", f"{who}: an answer by step {step} has parts of {shown}")]
    wrong = states.wrong(step, rows[:, 0])
    return [Finding("other", f"{who}: an answer by step {step} has {wrong}")] if wrong else []


def _refusals(records: list[Mapping[str, Any]]) -> list[Finding]:
    found, may = [], 0
    for record in records:
        may += record["what"] == "remade"
        if record["what"] == "topic refused":
            may -= 1
            if may < 0:
                found.append(Finding("refused", "a feature worker, a topic that is the same"))
    return found


def _quiet(records: list[Mapping[str, Any]]) -> list[Finding]:
    """Return which predictors did not come to the last step while no event came."""
    found: list[Finding] = []
    newest: dict[str, int] = {}
    last = 0
    for record in records:
        if record["what"] == "start":
            newest[record["who"]] = 0
        elif record["what"] == "answer":
            newest[record["who"]] = record["version"]
        elif record["what"] == "quiet":
            last = record["step"]
        elif record["what"] == "resumed":
            found += [
                Finding("behind", f"{who} answered by step {step} when it was quiet after {last}")
                for who, step in newest.items()
                if step != last
            ]
    return found


def _once(records: list[Mapping[str, Any]], events: Sequence[Sequence[int]]) -> list[Finding]:
    found = []
    for record in records:
        if record["what"] == "sent" and record["count"] > record["found"]:
            text = f"{record['count']} events were sent, the topic has {record['found']}"
            found.append(Finding("lost", text))
    trained = next((r["counts"] for r in records if r["what"] == "trained"), None)
    if trained is None:
        return [*found, Finding("behind", "the trainer did not come to the last event")]
    want = Counter(str(key) for each in events for key in each)
    for key in sorted({*want, *trained}, key=int):
        more = trained.get(key, 0) - want[key]
        if more:
            kind = "doubled" if more > 0 else "lost"
            text = f"key {key}: {trained.get(key, 0):g} events trained, {want[key]} were sent"
            found.append(Finding(kind, text))
    return found


def _last(records: list[Mapping[str, Any]]) -> list[Finding]:
    last = next((r["steps"] for r in records if r["what"] == "last"), None)
    newest = {r["who"]: 0 for r in records if r["what"] == "start"}
    for record in records:
        if record["what"] == "answer":
            newest[record["who"]] = record["version"]
    return [
        Finding("behind", f"{who} answered by step {step} in the end, the last step is {last}")
        for who, step in newest.items()
        if last is not None and step != last
    ]
