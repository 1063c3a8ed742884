# SPDX-License-Identifier: Apache-2.0
"""Decides from a recorded history whether the promises were kept, knowing nothing of the parts.

A history is a list of records, in the order of their times:

    {"what": "events", "keys": [...]}     the topic's events in their order, as read back at the end
    {"what": "sent", "count": 5000, "found": 5000}  how many the producer was told are in the topic,
                                          and how many different ones are
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
            came to the last state; 'ended', a part that ended by itself; 'refused', a request.
        text: what was seen.
    """

    kind: str
    text: str


class _States:
    """Counts of each key after each step, from the events."""

    def __init__(self, events: Sequence[int], keys: int, batch: int) -> None:
        seen = np.zeros((len(events) // batch + 1, keys), np.int64)
        for step in range(1, len(seen)):
            of_step = np.asarray(events[(step - 1) * batch : step * batch])
            seen[step] = seen[step - 1] + np.bincount(of_step, minlength=keys)
        self._seen = seen

    def counts(self, step: int) -> np.ndarray | None:
        return self._seen[step] if 0 <= step < len(self._seen) else None


def judge(history: Iterable[Mapping[str, Any]], keys: int, batch: int) -> list[Finding]:
    """Return what is wrong with a history; nothing where all promises were kept.

    Args:
        history: records as above.
        keys: number of keys, which are 0 to `keys - 1`; each answer has a row of each.
        batch: number of events of a step.
    """
    records = list(history)
    events = next(r["keys"] for r in records if r["what"] == "events")
    found = _answers(records, _States(events, keys, batch))
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
    return found + _once(records, events) + _last(records)


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
    want = states.counts(step)
    if want is None:
        return [Finding("other", f"{who} answered by step {step}, which no events lead to")]
    wrong = np.flatnonzero(rows[:, 0] != want)
    if len(wrong):
        key = wrong[0]
        text = f"{rows[key, 0]:g} events of key {key}, there were {want[key]}"
        return [Finding("other", f"{who}: an answer by step {step} has {text}")]
    return []


def _once(records: list[Mapping[str, Any]], events: Sequence[int]) -> list[Finding]:
    found = []
    for record in records:
        if record["what"] == "sent" and record["count"] > record["found"]:
            text = f"{record['count']} events were sent, the topic has {record['found']}"
            found.append(Finding("lost", text))
    trained = next((r["counts"] for r in records if r["what"] == "trained"), None)
    if trained is None:
        return [*found, Finding("behind", "the trainer did not come to the last event")]
    want = Counter(str(key) for key in events)
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
