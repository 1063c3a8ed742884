# SPDX-License-Identifier: Apache-2.0
"""Raw columns with lists of any length: the rows of a request are read as they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RawColumns, RequestError, parse_request

RAW = RawColumns(["user", "seen"], frozenset({"seen"}))
VALUES = st.one_of(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.booleans(), max_size=5),
)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), VALUES), min_size=1, max_size=6), st.booleans())
def test_lists_of_any_length_are_read(lists: list[Any], by_column: bool) -> None:
    types = {type(value) for each in lists if each for value in each}
    rows = [{"user": row, "seen": each} for row, each in enumerate(lists)]
    columns = {"user": list(range(len(lists))), "seen": lists}
    body = json.dumps({"columns": columns} if by_column else {"rows": rows}).encode()
    if len(types) > 1:
        with pytest.raises(RequestError, match="'seen' must be all strings, .* got a mixture"):
            parse_request(body, [], [], raw=RAW)
        return
    found: Any = parse_request(body, [], [], raw=RAW).inputs
    expected = [each or [] for each in lists] if any(each is not None for each in lists) else lists
    assert found["seen"].to_pylist() == expected
    assert found["user"].to_pylist() == columns["user"]


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        ([[1], 2], "'seen' must have a list in each row, got 2"),
        ([[1], "a"], "'seen' must have a list in each row, got 'a'"),
        ([[[1]], []], "'seen' must be all strings, .* got \\[1\\]"),
        ([[True], [1]], "'seen' must be all strings, .* got a mixture"),
        ([[1 << 63], []], "'seen' must be of integers from"),
    ],
)
def test_lists_of_other_values_are_refused(seen: Any, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        parse_request(json.dumps({"columns": {"seen": seen}}).encode(), [], [], raw=RAW)


def test_values_of_lists_count_for_the_limit() -> None:
    body = json.dumps({"columns": {"user": [1, 2], "seen": [[1] * 6, [2] * 4]}}).encode()
    limits = Limits(elements=11)
    with pytest.raises(RequestError, match="a request must have at most 11 values"):
        parse_request(body, [], [], limits, RAW)
    assert parse_request(body, [], [], Limits(elements=12), RAW)
