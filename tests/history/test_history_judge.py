# SPDX-License-Identifier: Apache-2.0
"""The judge of histories names what is wrong with one, and finds nothing in a good one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.history.judge import judge

KEYS, BATCH, STEPS = 5, 4, 12

Record = dict[str, Any]


def good() -> list[Record]:
    """Two predictors that follow a trainer; one of them is started again."""
    events = np.random.default_rng(1).integers(0, KEYS, STEPS * BATCH).tolist()
    by_partition = [[key for key in events if key < 3], [key for key in events if key >= 3]]
    history: list[Record] = [
        {"what": "events", "keys": [by_partition[0][:9]]},  # of a topic that was deleted
        {"what": "remade"},
        {"what": "topic refused"},
        {"what": "events", "keys": [by_partition[0][9:], by_partition[1]]},
        {"what": "sent", "count": len(events), "found": len(events)},
    ]
    history += [{"what": "start", "who": who, "files": 0} for who in ("one", "two")]
    for step in range(0, STEPS + 1, 2):
        if step == 6:
            history.append({"what": "start", "who": "two", "files": 6})
        counts = Counter(events[: step * BATCH])
        rows = [[counts[key], step, step] for key in range(KEYS)]
        for who in ("one", "two"):
            answer = {"what": "answer", "who": who, "version": step, "rows": rows}
            history += [answer, {"what": "files", "newest": step}]
        if step == 10:
            history += [{"what": "quiet", "step": step}, {"what": "resumed"}]
    counts = Counter(events)
    history.append({"what": "trained", "counts": {str(key): n for key, n in counts.items()}})
    return [*history, {"what": "last", "steps": STEPS}]


def answers(history: list[Record], who: str = "one") -> list[Record]:
    return [r for r in history if r["what"] == "answer" and r["who"] == who]


def row(history: list[Record], at: int, key: int, column: int, change: float) -> None:
    """Changes a number of an answer, and of this one alone."""
    answer = answers(history)[at]
    answer["rows"] = [list(of) for of in answer["rows"]]
    answer["rows"][key][column] += change


def step_back(history: list[Record]) -> None:
    one = answers(history)
    one[4].update({name: one[2][name] for name in ("version", "rows")})


def restarted_behind_the_files(history: list[Record]) -> None:
    for record in history:
        if record["what"] == "start" and record["files"]:
            record["files"] = 8


def exchanged(history: list[Record]) -> None:
    row(history, 3, 2, 0, 1)
    row(history, 3, 1, 0, -1)


def of_partitions(history: list[Record], at: int, more: int, *names: str) -> None:
    """Gives answers more events of the first partition, and fewer of the other."""
    events: list[list[int]] = [[], []]
    for record in history:
        for partition, keys in enumerate(record["keys"] if record["what"] == "events" else ()):
            events[partition] += keys
    for name in names:
        answer = answers(history, name)[at]
        rows = [list(of) for of in answer["rows"]]
        first = int(sum(row[0] for row in rows[:3])) + more
        counts = Counter(events[0][:first] + events[1][: int(sum(r[0] for r in rows)) - first])
        answer["rows"] = [[counts[key], *rows[key][1:]] for key in range(KEYS)]


def too_late(history: list[Record]) -> None:
    at = next(i for i, r in enumerate(history) if r["what"] == "resumed")
    answer = next(r for r in history if r["what"] == "answer" and r["version"] == 10)
    history.insert(at + 1, answer)
    history.remove(answer)


def trained(change: int) -> Callable[[list[Record]], None]:
    def apply(history: list[Record]) -> None:
        next(r for r in history if r["what"] == "trained")["counts"]["3"] += change

    return apply


def unsaved(history: list[Record]) -> None:
    for record in history:
        if record["what"] == "files" and record["newest"] == STEPS:
            record["newest"] -= 1


REFUSED = {"what": "refused", "who": "one", "status": 500, "text": "no rows"}
WRONG: list[tuple[Callable[[list[Record]], object], str, str]] = [
    (lambda h: row(h, 3, 2, 1, -2), "mixed", "by step 6 has parts of 4, 6"),
    (lambda h: row(h, 3, 4, 2, 1), "mixed", "by step 6 has parts of 6, 7"),
    (lambda h: row(h, 3, 2, 0, 1), "other", "by step 6 has 25 events, these are not 6 steps"),
    (lambda h: row(h, 5, 0, 0, -1), "other", "by step 10 has 39 events"),
    (exchanged, "other", "by step 6 has"),
    (lambda h: of_partitions(h, 3, 1, "one"), "other", "an answer by the same step"),
    (lambda h: of_partitions(h, 3, 9, "one", "two"), "other", "events of the partitions, step"),
    (lambda h: h.insert(9, {"what": "topic refused"}), "refused", "a topic that is the same"),
    (too_late, "behind", "one answered by step 8 when it was quiet after 10"),
    (step_back, "back", "one answered by step 4 after step 6"),
    (restarted_behind_the_files, "back", "two answered by step 6 after step 8"),
    (trained(-1), "lost", "key 3"),
    (trained(+1), "doubled", "key 3"),
    (lambda h: h[4].update(count=49), "lost", "49 events were sent"),
    (lambda h: h.insert(9, {**REFUSED}), "refused", "one: 500"),
    (unsaved, "unsaved", "by step 12, files had 11"),
    (lambda h: h.remove(answers(h, "two")[-1]), "behind", "two answered by step 10 in the end"),
    (lambda h: h.insert(9, {"what": "ended", "who": "trainer", "code": 1}), "ended", "code 1"),
]


def test_nothing_is_wrong_with_a_good_history() -> None:
    assert judge(good(), KEYS, BATCH) == []


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_is_wrong_is_named(number: int) -> None:
    spoil, kind, text = WRONG[number]
    history = good()
    spoil(history)
    found = judge(history, KEYS, BATCH)
    assert {each.kind for each in found} == {kind}
    assert all(text in each.text for each in found), found


def test_a_trainer_that_never_ends_is_named() -> None:
    history = [record for record in good() if record["what"] != "trained"]
    assert [each.kind for each in judge(history, KEYS, BATCH)] == ["behind"]
