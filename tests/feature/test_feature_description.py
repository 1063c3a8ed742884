# SPDX-License-Identifier: Apache-2.0
"""A pipeline that was described as JSON and made again gives the same arrays, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import FeatureSpec, feature, stream
from mindspore_rec.common.columns.description import describe_pipeline, described_pipeline
from mindspore_rec.common.columns.joint import JointFeature
from mindspore_rec.common.columns.kept_events import KeptEvents
from mindspore_rec.common.columns.labels import RequiredNumber
from mindspore_rec.stream import Feature, FeaturePipeline, Number

SMALL = st.floats(-100, 100, width=32)
PARTS = st.sampled_from(["minute", "hour", "weekday", "day", "month"])
KEYS = st.one_of(
    st.builds(stream.Category, st.just("city"), st.one_of(st.none(), st.text(min_size=1))),
    st.builds(stream.Key, st.just("user")),
    st.builds(stream.TimePart, st.just("time"), PARTS),
    st.builds(stream.TimePart, st.just("time"), PARTS, st.sampled_from(["s", "ms", None])),
    st.builds(
        stream.TimePart, st.just("day"), PARTS, st.none(), st.sampled_from(["iso", "%Y-%m-%d"])
    ),
    st.builds(stream.Category, st.just("user"), st.none(), st.sampled_from(["text", "whole"])),
    st.builds(stream.QuantileBucket, st.just("price"), st.integers(2, 9), st.integers(1, 50)),
)
LISTS = st.one_of(
    st.builds(feature.Categories, st.just("tags"), st.integers(1, 5), st.sampled_from([None, "t"])),
    st.builds(feature.Categories, st.just("bars"), st.integers(1, 5), st.none(), st.just("|"),
              st.sampled_from([None, "whole"])),
    st.builds(feature.Words, st.just("city"), st.integers(1, 5)),
)  # fmt: skip
CROSSES = st.builds(
    feature.Cross, st.lists(KEYS, min_size=2, max_size=4), st.sampled_from([None, "both"])
)
NUMBERS = st.one_of(
    st.builds(feature.NumbersOfTexts, st.builds(stream.MinMaxScale, st.just("cost")), st.just(",")),
    st.builds(feature.Label, st.just("city"), st.sampled_from(["Rome", "Berlin"])),
    st.builds(Number, st.just("price"), SMALL),
    st.builds(stream.TimeCycle, st.just("time"), PARTS),
    st.builds(stream.LogScale, st.just("price"), st.booleans(), SMALL),
    st.builds(stream.StandardScale, st.just("price"), SMALL),
    st.builds(stream.MinMaxScale, st.just("price"), st.one_of(st.none(), st.floats(-9, 0)),
              st.one_of(st.none(), st.floats(1, 9)), SMALL),
    st.builds(stream.QuantileScale, st.just("price"), st.integers(2, 9), st.integers(1, 50), SMALL),
    st.builds(stream.MixedScale, st.just("price"), st.integers(2, 9), st.integers(1, 50), SMALL),
)  # fmt: skip


CLOCKS = [
    FeatureSpec("clock", index_key="time", is_timestamp=True),
    FeatureSpec("clock", is_timestamp=True, transform=feature.Times("day", format="iso")),
]


@st.composite
def pipelines(draw: st.DrawFn) -> FeaturePipeline:
    outputs: dict[str, Any] = {
        "one": FeatureSpec("one", table_name="t", transform=draw(KEYS), access_threshold=2),
        "two": FeatureSpec("two", index_key="city", eviction_threshold=draw(st.integers(1, 99))),
        "ids": draw(st.lists(st.one_of(KEYS, LISTS, CROSSES), min_size=1, max_size=4)),
        "dense": draw(st.lists(NUMBERS, min_size=1, max_size=5)),
        "clock": draw(st.sampled_from(CLOCKS)),
    }
    names = draw(st.permutations(list(outputs)))
    kept = draw(st.booleans())
    return FeaturePipeline({name: outputs[name] for name in names}, keep_rest=kept)


def rows(rng: np.random.Generator, count: int = 9) -> dict[str, Any]:
    price: list[Any] = rng.normal(0, 30, count).round(2).tolist()
    price[rng.integers(count)] = None
    return {
        "city": [["Rome", "K\u00f6ln", ""][i] for i in rng.integers(0, 3, count)],
        "day": [f"2024-0{i}-1{i}" for i in rng.integers(1, 9, count)],
        "tags": [list("abcdefg")[:i] for i in rng.integers(0, 7, count)],
        "bars": [["", "7", "8|9", "x|-1|7|7|7|7"][i] for i in rng.integers(0, 4, count)],
        "cost": [["1.000,5", "2,5", "n/a"][i] for i in rng.integers(0, 3, count)],
        "user": rng.integers(-5, 5, count).tolist(),
        "time": (1_700_000_000 + rng.integers(0, 10**6, count)).tolist(),
        "price": price,
        "more": rng.random(count).tolist(),
    }


@settings(max_examples=80, deadline=None)
@given(pipelines(), st.integers(0, 1000))
def test_described_and_made_again(pipeline: FeaturePipeline, seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = json.dumps(describe_pipeline(pipeline))
    for _ in range(2):
        pipeline(rows(rng))
    made = described_pipeline(json.loads(text))
    assert json.dumps(describe_pipeline(made)) == text
    made.load_state_dict(json.loads(json.dumps(pipeline.state_dict())))
    assert sorted(made.column_names) == sorted(pipeline.column_names)
    assert set(made.specs) and {s.name for s in made.specs} == {s.name for s in pipeline.specs}
    asked = rows(rng)
    expected, found = pipeline.batch(asked, learn=False), made.batch(asked, learn=False)
    assert found[1] == expected[1] and found[0].keys() == expected[0].keys()
    for name, array in expected[0].items():
        if isinstance(array, list):  # a column of lists, which keep_rest passes on
            assert found[0][name] == array
            continue
        np.testing.assert_array_equal(found[0][name], array)


class Own(Number):
    """A transform that is not the library's."""


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        (FeaturePipeline({"x": [Number("a")]}, prepare=[lambda frame: frame]), "prepare"),
        (FeaturePipeline({"x": [Number("a"), Own("b")]}), "Own of column 'b' is no transform"),
        (FeaturePipeline({"x": [Number("a")]}).received(), "array 'x', made elsewhere"),
    ],
)
def test_what_has_no_description(pipeline: FeaturePipeline, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        describe_pipeline(pipeline)


GOOD: dict[str, Any] = describe_pipeline(FeaturePipeline({"x": [Number("a")]}))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {**GOOD, "outputs": []},
        {**GOOD, "outputs": [1]},
        {**GOOD, "outputs": GOOD["outputs"] * 2},
        {**GOOD, "keep_rest": 1},
        {**GOOD, "timestamp": {"transform": "Key", "column": "a"}},
        {**GOOD, "outputs": [{"name": "x", "features": [{"transform": "eval", "column": "a"}]}]},
        {**GOOD, "outputs": [{"name": "x", "features": [{"transform": "Key"}]}]},
        {**GOOD, "outputs": [{"name": "x", "features": [{"transform": "Key", "column": []}]}]},
        {**GOOD, "outputs": [{"name": "x", "features": [{"feature": {"name": "no table!"}}]}]},
        {**GOOD, "outputs": [{"name": "x", "features": [{"feature": {"other": 1}}]}]},
    ],
)
def test_what_is_no_description(wrong: Any) -> None:
    with pytest.raises(ValueError, match="no description of a pipeline"):
        described_pipeline(wrong)


def test_every_transform_of_the_library_has_a_description() -> None:
    from mindspore_rec.common.columns import description

    def all_of(kind: type) -> set[type]:
        below: list[type] = kind.__subclasses__()
        return {kind}.union(*map(all_of, below))

    own = {each for each in all_of(Feature) if each.__module__.startswith("mindspore_rec")}
    own = {each for each in own if not each.__name__.startswith("_")}  # base classes
    nested = {feature.NumbersOfTexts, feature.Cross, feature.TargetStatistics}
    nested.add(KeptEvents)  # of a schema, whose description makes it
    nested.add(RequiredNumber)  # described as a Number
    assert own - {Feature, JointFeature} == set(description._TRANSFORMS) | nested
