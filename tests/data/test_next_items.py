# SPDX-License-Identifier: Apache-2.0
"""Rows of the next item, beside plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.data import next_items

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 6)), max_size=25)


def plain(events: list, begin: Any, end: Any, together: bool, least: int, most: Any) -> list:
    rows = []
    for user in sorted({event[0] for event in events}):
        mine = sorted((e for e in events if e[0] == user), key=lambda event: event[2])
        done = 0
        while done < len(mine):
            time, until = mine[done][2], done + 1
            while together and until < len(mine) and mine[until][2] == time:
                until += 1
            inside = (begin is None or time >= begin) and (end is None or time < end)
            if inside and done >= least:
                history = [e[1] for e in mine[:done]]
                targets = [e[1] for e in mine[done:until]]
                rows.append((user, time, targets, history[-most:] if most else history))
            done = until
    return rows


@given(
    events=EVENTS,
    begin=st.none() | st.integers(0, 6),
    end=st.none() | st.integers(0, 6),
    together=st.booleans(),
    least=st.integers(0, 2),
    most=st.none() | st.integers(1, 3),
    kind=st.sampled_from([np.int64, np.float64, "datetime64[s]"]),
)
@settings(deadline=None)
def test_rows_of_plain_loops(events, begin, end, together, least, most, kind) -> None:
    user, item, time = np.array(events, np.int64).reshape(-1, 3).T
    period = [None if each is None else np.array(each).astype(kind) for each in (begin, end)]
    rows = next_items(
        user, item, time.astype(kind), *period, together=together, least=least, most=most
    )
    made = [
        (
            *(int(each) for each in (rows.user[b], rows.time[b].astype(np.int64))),
            rows.target[rows.target_offsets[b] : rows.target_offsets[b + 1]].tolist(),
            rows.history[rows.history_offsets[b] : rows.history_offsets[b + 1]].tolist(),
        )
        for b in range(len(rows.user))
    ]
    assert made == plain(events, begin, end, together, least, most)
    assert rows.target_offsets[0] == rows.history_offsets[0] == 0
    assert (rows.target_offsets[-1], rows.history_offsets[-1]) == (
        len(rows.target),
        len(rows.history),
    )


def test_users_and_items_may_be_texts() -> None:
    rows = next_items(["b", "a", "b"], ["x", "y", "z"], [1, 2, 3])
    assert (rows.user.tolist(), rows.target.tolist(), rows.history.tolist()) == (
        ["b"],
        ["z"],
        ["x"],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"user": [1, 2]}, "of one length"),
        ({"user": [[1]], "item": [[1]], "time": [[1]]}, "of one length"),
        ({"time": [np.nan]}, "NaN, got one at event 0"),
        ({"time": np.array(["NaT"], "datetime64[s]")}, "NaN, got one at event 0"),
        ({"least": -1}, "least must be at least 0"),
        ({"most": 0}, "most at least 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        next_items(**{"user": [1], "item": [1], "time": [1], **arguments})


def test_times_with_a_zone_and_missing_times() -> None:
    times = pd.Series(pd.to_datetime(["2020-01-02", "2020-01-01"], utc=True))
    rows = next_items([1, 1], [7, 8], times)
    assert rows.target.tolist() == [7] and rows.history.tolist() == [8]
    with pytest.raises(ValueError, match="time must not be NaN, got one at event 1"):
        next_items([1, 1], [7, 8], pd.Series(pd.to_datetime(["2020-01-01", None], utc=True)))
    with pytest.raises(ValueError, match="time must be numbers or times"):
        next_items([1, 1], [7, 8], np.array(["x", "y"], object))
