# SPDX-License-Identifier: Apache-2.0
"""A state of a pipeline whose outputs are of other columns is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mindspore_rec import FeatureSpec
from mindspore_rec.stream import FeaturePipeline, MinMaxScale, Number

ROWS: dict[Any, list[float]] = {"a": [1.0, 2.0], "b": [10.0, 30.0], "c": [0.0, 7.0]}


def pipeline(columns: Sequence[Any], more: Sequence[Any] = ("c",)) -> FeaturePipeline:
    return FeaturePipeline(
        {"dense": [MinMaxScale(c) for c in columns], "rest": [Number(c) for c in more]}
    )


def saved(made: FeaturePipeline) -> Any:
    """Return the state after a batch, as a file keeps it."""
    made(ROWS)
    return json.loads(json.dumps(made.state_dict()))


@given(st.permutations("abc"), st.permutations("abc"))
def test_columns_in_another_order(one, other):
    state, new = saved(pipeline(one)), pipeline(other)
    before = new.state_dict()
    if one == other:
        new.load_state_dict(state)
        assert json.loads(json.dumps(new.state_dict())) == state
        return
    with pytest.raises(ValueError, match="output 'dense' of the state is of columns"):
        new.load_state_dict(state)
    with pytest.raises(ValueError, match="output 'dense' of the state is of columns"):
        new.with_state(state)
    assert new.state_dict() == before


def test_columns_of_features_that_learn_nothing():
    state = saved(pipeline("ab", "bc"))
    message = r"output 'rest' of the state is of columns \['b', 'c'\], .* is of \['c', 'b'\]"
    with pytest.raises(ValueError, match=message):
        pipeline("ab", "cb").load_state_dict(state)


def test_columns_of_two_outputs():
    def made(first: str, second: str) -> FeaturePipeline:
        return FeaturePipeline({"x": MinMaxScale(first), "y": MinMaxScale(second)})

    with pytest.raises(ValueError, match="output 'x' of the state is of columns"):
        made("b", "a").load_state_dict(saved(made("a", "b")))


def test_columns_of_keys():
    def made(column: str) -> FeaturePipeline:
        return FeaturePipeline({"u": FeatureSpec("u", index_key=column), "x": MinMaxScale("a")})

    state = saved_keys(made("b"))
    made("b").load_state_dict(state)
    with pytest.raises(ValueError, match="output 'u' of the state is of columns"):
        made("c").load_state_dict(state)


def saved_keys(made: FeaturePipeline) -> Any:
    made({"a": [1.0, 2.0], "b": ["x", "y"]})
    return made.state_dict()


def test_places_and_names_may_be_the_same_columns():
    names, places = pipeline("ab"), pipeline((0, 1), (2,))
    places((ROWS["a"], ROWS["b"], ROWS["c"]))
    names.load_state_dict(places.state_dict())
    assert names.state_dict()["dense"] == places.state_dict()["dense"]
    with pytest.raises(ValueError, match="output 'dense' of the state is of columns"):
        pipeline((1, 0), (2,)).load_state_dict(places.state_dict())


def test_states_of_earlier_versions_have_no_columns():
    state = saved(pipeline("ab"))
    del state[""]
    new = pipeline("ab")
    new.load_state_dict(state)
    assert new.state_dict()["dense"] == state["dense"]


@pytest.mark.parametrize(
    "columns", [None, [], {"dense": ["a", "b"]}, {"dense": ["a"], "rest": ["c"]}, {"dense": "ab"}]
)
def test_columns_that_are_none(columns):
    new = pipeline("ab")
    before = new.state_dict()
    with pytest.raises(ValueError, match="state must have the columns of output"):
        new.load_state_dict({**saved(pipeline("ab")), "": columns})
    assert new.state_dict() == before
