# SPDX-License-Identifier: Apache-2.0
"""FeaturePipeline as the one stage: declarations and transforms, in one object, everywhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import (
    CountAdmission,
    Eviction,
    FeatureSpec,
    category_keys,
    create_table,
    get_insert_func,
)
from mindspore_rec.common.columns.dataset_columns import map_dataset
from mindspore_rec.stream import (
    Category,
    FeaturePipeline,
    Key,
    LogScale,
    MinMaxScale,
    Number,
    QuantileBucket,
    QuantileScale,
    StandardScale,
    TimeCycle,
    TimePart,
    to_record_batch,
)

RECORDED = json.loads((Path(__file__).parent / "stage_outputs.json").read_text(encoding="utf-8"))
TIME = FeatureSpec("time", is_timestamp=True)


def rows(seed: int, n: int = 40) -> dict[str, Any]:
    """Return the input of the recorded outputs: do not change it."""
    rng = np.random.default_rng(seed)
    return {
        "user": rng.integers(-5, 50, n),
        "small": rng.integers(0, 9, n).astype(np.int32),
        "city": np.array([["Rome", "Köln", "", "Oslo"][i] for i in rng.integers(0, 4, n)], object),
        "tags": np.array(
            [["a", "b", "c"][i] for i in rng.integers(0, 3, 2 * n)], object
        ).reshape(n, 2),
        "price": rng.lognormal(3, 2, n),
        "time": 1_700_000_000.25 + seed * 60 + np.arange(n, dtype=np.float64),
        "label": (rng.random((n, 1)) < 0.3).astype(np.float32),
        "click": rng.integers(0, 2, n),
    }  # fmt: skip


def declared() -> dict[str, Any]:
    specs = [
        FeatureSpec("u", index_key="user", table_name="users"),
        FeatureSpec("small"),
        FeatureSpec("c", index_key="city", table_name="places"),
        FeatureSpec("tags"),
        TIME,
    ]
    return {spec.name: spec for spec in specs}


def transformed() -> dict[str, Any]:
    return {
        "ids": [
            Category("user"),
            Category("city", field="places"),
            Key("user"),
            TimePart("time", "hour"),
            QuantileBucket("price", buckets=8, sample=60),
        ],
        "dense": [
            Number("price"),
            LogScale("price"),
            LogScale("price", running=True),
            MinMaxScale("price"),
            StandardScale("price"),
            QuantileScale("price", buckets=8, sample=60),
            TimeCycle("time", "minute"),
        ],
        "label": Number("click"),
    }


def described(array: Any) -> dict[str, Any]:
    array = np.asarray(array)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        "first": array.reshape(-1)[:4].tolist(),
    }


def as_kind(kind: str, batch: dict[str, Any]) -> Any:
    return {
        "dict": lambda: batch,
        "record batch": lambda: to_record_batch(batch),
        "table": lambda: pa.Table.from_batches([to_record_batch(batch)]),
    }[kind]()


LATER = {"decimal"}  # keys of states that the recording's version lacked


def assert_close(found: Any, recorded: Any) -> None:
    """Compare nested values; NumPy adds numbers in another order where vectors are shorter."""
    if isinstance(recorded, float):
        assert found == pytest.approx(recorded, rel=1e-13)
    elif isinstance(recorded, dict):
        assert found.keys() - LATER == recorded.keys()
        for name, value in recorded.items():
            assert_close(found[name], value)
    elif isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            assert_close(one, other)
    else:
        assert found == recorded


@pytest.mark.parametrize("kind", ["dict", "record batch", "table"])
def test_together_they_make_what_each_stage_made_before(kind: str) -> None:
    stage = FeaturePipeline({**declared(), **transformed()}, threads=2)
    insert = get_insert_func(list(declared().values()))
    for seed in range(3):
        batch, event_time = stage.batch(as_kind(kind, rows(seed)))
        found = {name: described(array) for name, array in batch.items()}
        before = {**RECORDED["specs"][seed], **RECORDED["pipeline"][seed]}
        assert event_time == before.pop("time")["first"][0]
        assert found == before
        apart = {name: described(array) for name, array in insert(rows(seed)).items()}
        assert {n: apart[n] for n in RECORDED["specs"][seed]} == RECORDED["specs"][seed]
    applied = stage.apply(as_kind(kind, rows(9)))
    assert {name: described(applied[name]) for name in RECORDED["applied"]} == RECORDED["applied"]
    assert_close({n: stage.state_dict()[n] for n in RECORDED["state"]}, RECORDED["state"])
    again = FeaturePipeline(transformed())
    again.load_state_dict(RECORDED["state"])  # of a checkpoint of those days
    made = again.apply({n: c for n, c in rows(9).items() if c.ndim == 1})
    assert {name: described(array) for name, array in made.items()} == RECORDED["applied"]


TEXTS = st.lists(
    st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))), max_size=9
)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.data())
def test_a_spec_and_a_category_of_its_table_have_the_same_keys(texts: list[Any], data: Any) -> None:
    numbers = data.draw(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=len(texts),
                                 max_size=len(texts)))  # fmt: skip
    batch = pa.RecordBatch.from_pydict(
        {
            "text": pa.array(texts, pa.string()),
            "words": pa.array(texts, pa.string()).dictionary_encode(),
            "number": pa.array(numbers, pa.int64()),
        }
    )
    stage = FeaturePipeline(
        {
            "plain": FeatureSpec("plain", table_name="t", index_key="text"),
            "words": FeatureSpec("words", table_name="t"),
            "hashed": FeatureSpec("hashed", table_name="t", transform=Category("text", field="t")),
            "number": FeatureSpec("number"),
            "key": FeatureSpec("key", table_name="k", transform=Key("number")),
            "mixed": [Category("text", field="t"), FeatureSpec("again", "t", "text"),
                      Category("number")],
        }
    )  # fmt: skip
    made = stage(batch)
    expected = category_keys("t", pa.array(texts, pa.string()))
    for name in ("plain", "words", "hashed"):
        np.testing.assert_array_equal(made[name], expected)
    for name in ("number", "key"):
        np.testing.assert_array_equal(made[name], np.array(numbers, np.int64))
    hashed = category_keys("number", pa.array(numbers, pa.int64()))
    np.testing.assert_array_equal(made["mixed"], np.stack([expected, expected, hashed], 1))
    from_objects = stage({n: np.array(batch.column(n).to_pylist(), dtype) for n, dtype in
                          (("text", object), ("words", object), ("number", np.int64))})  # fmt: skip
    for name in made:
        np.testing.assert_array_equal(made[name], from_objects[name])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), min_size=1, max_size=5))
def test_a_dataset_of_batches_learns_in_order(columns: list[list[float]]) -> None:
    outputs: dict[str, Any] = {"n": [MinMaxScale("x"), StandardScale("x")]}
    one, two = (
        FeaturePipeline(outputs),
        FeaturePipeline({"n": [MinMaxScale("x"), StandardScale("x")]}),
    )
    expected = [one({"x": np.array(column)})["n"] for column in columns]
    dataset = ds.GeneratorDataset(
        lambda: ((np.array(column),) for column in columns), ["x"], shuffle=False
    )
    made = dataset.apply(two).create_tuple_iterator(num_epochs=1, output_numpy=True)
    for want, (got,) in zip(expected, made, strict=True):
        np.testing.assert_array_equal(got, want)


def places() -> FeaturePipeline:
    return FeaturePipeline(
        {
            "user": FeatureSpec("user", index_key=1),
            "time": FeatureSpec("time", index_key=0, is_timestamp=True),
            "dense": [MinMaxScale(2)],
        },
        keep_rest=True,
    )


def test_tuples_of_columns_and_datasets_by_place() -> None:
    label = np.array([[0], [1]], np.float32)
    batch = (np.array([60.5, 61.5]), np.array([[7], [8]]), np.array([2.0, 4.0]), label)
    made, event_time = places().batch(batch)
    assert isinstance(made, tuple) and event_time == 61
    for found, wanted in zip(made, ([[7], [8]], [[0.0], [1.0]], label), strict=True):
        np.testing.assert_array_equal(found, np.array(wanted))
    dataset = ds.GeneratorDataset(lambda: iter([batch]), ["t", "u", "x", "y"], shuffle=False)
    timed = map_dataset(places(), dataset, learn=True, with_time=True)
    assert timed.get_col_names() == ["user", "dense", "time", "y"]
    (row,) = timed.create_tuple_iterator(num_epochs=1, output_numpy=True)
    for found, expected in zip(row, (*made[:2], [61], label), strict=True):
        np.testing.assert_array_equal(found, expected)
    inserted = get_insert_func(places())(batch)
    for found, expected in zip(inserted, row, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_batch_that_fails_has_taught_nothing() -> None:
    stage = FeaturePipeline({**transformed(), "time": TIME})
    before = json.dumps(stage.state_dict())
    good = {name: column for name, column in rows(1).items() if column.ndim == 1}
    for bad, error, words in [
        ({**good, "click": np.array(["x"] * 40)}, ValueError, "column 'click' must be numbers"),
        ({**good, "time": np.zeros(40)}, ValueError, "'time': column 'time' must be in"),
        ({**good, "click": good["click"][:3]}, ValueError, "got 40 of 'user' and 3 of 'click'"),
        ({n: c for n, c in good.items() if n != "click"}, ValueError, "have a column 'click'"),
    ]:
        with pytest.raises(error, match=words):
            stage.batch(bad)
        assert json.dumps(stage.state_dict()) == before
    broken = {**stage.state_dict(), "label": ["?"]}
    other = stage.with_state(FeaturePipeline(transformed()).state_dict())
    other.batch(good)
    learned = json.dumps(other.state_dict())
    assert learned != before == json.dumps(stage.state_dict())
    with pytest.raises(ValueError, match="must be None"):
        other.load_state_dict({**json.loads(before), "label": broken["label"]})
    assert json.dumps(other.state_dict()) == learned


def test_the_worker_sends_times_and_the_trainer_declares_them_again() -> None:
    stage = FeaturePipeline(
        {
            "sent": FeatureSpec("sent", index_key="at", is_timestamp=True),
            "u": FeatureSpec("u", index_key="user", eviction_threshold=60),
            "dense": [MinMaxScale("price")],
        }
    )
    batch = {"at": np.array([60.25, 61.5]), "user": ["a", "b"], "price": [1.0, 3.0]}
    worker = stage.with_times()
    assert worker.column_names == ["sent", "u", "dense"] and stage.column_names == ["u", "dense"]
    sent = worker(batch)
    assert list(sent) == worker.column_names and sent["sent"].tolist() == [60.25, 61.5]
    learned = {"u": [None], "dense": [[1.0, 3.0]], "": {"u": ["user"], "dense": ["price"]}}
    assert stage.state_dict() == worker.state_dict() == learned
    receiver = stage.received()
    assert not receiver.learns and stage.learns
    assert receiver.specs == stage.specs  # the same tables and thresholds
    made, event_time = receiver.batch(to_record_batch(sent))
    assert event_time == 61 and list(made) == ["u", "dense"]
    for name, array in made.items():
        np.testing.assert_array_equal(array, sent[name])
    dates = {**batch, "at": np.array(["1970-01-02", "NaT"], "datetime64[ns]")}
    assert worker.apply(dates)["sent"][0] == 86400.0
    with pytest.raises(ValueError, match="one of the features must be the timestamp"):
        FeaturePipeline({"a": Key("a")}).with_times()


def test_only_the_wanted_arrays_are_made() -> None:
    stage = FeaturePipeline({**declared(), **transformed()})
    given = {"user": np.array([1, 2]), "click": [1, 0]}
    assert list(stage.apply(given, ["label", "u"])) == ["label", "u"]
    assert stage.reads(["u", "label"]) == ["user", "click"]
    with pytest.raises(ValueError, match="columns must be of .* got 'x'"):
        stage.apply(given, ["x"])
    assert FeaturePipeline({"a": Key("a")}, prepare=[lambda frame: frame]).reads() is None


def test_tables_take_their_thresholds_from_the_stage(unique: Any) -> None:
    name = unique()
    hour = FeatureSpec("hour", table_name=name, access_threshold=3, eviction_threshold=60,
                       transform=TimePart("time", "hour"))  # fmt: skip
    stage = FeaturePipeline({"time": TIME, "hour": hour, "label": Number("click")})
    table = create_table(ms.int64, 4, name, "ones", specs=stage)
    assert table.admission == CountAdmission(3) and table.eviction == Eviction(max_idle_seconds=60)
    keys = stage({"time": [7200], "click": [1]})["hour"]
    np.testing.assert_array_equal(keys, category_keys("time.hour", [2]))


def test_a_dataframe_and_functions_of_the_user() -> None:
    def known(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(twice=frame["x"] * 2)[frame["user"].notna()]

    stage = FeaturePipeline(
        {"user": FeatureSpec("user"), "n": Number("twice"), "time": TIME}, prepare=[known]
    )
    frame = pd.DataFrame({"user": ["a", None], "x": [1.0, 2.0], "time": [60, 90]})
    made, event_time = stage.batch(frame)
    assert (made["n"].tolist(), event_time) == ([[2.0]], 60)
    np.testing.assert_array_equal(made["user"], category_keys("user", ["a"]))
    made, event_time = stage.batch(frame[1:])
    assert (made["n"].shape, event_time) == ((0, 1), None)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: FeaturePipeline({"x": FeatureSpec("y")}), ValueError, "must have the name of its"),
        (lambda: FeaturePipeline({"x": [TIME]}), ValueError, "'time' is the timestamp"),
        (lambda: FeaturePipeline({"x": TIME}), ValueError, "must have the name of its feature"),
        (lambda: FeaturePipeline({"x": [FeatureSpec("y"), Number("z")]}), ValueError, "keys only"),
        (
            lambda: FeaturePipeline(cast(Any, {7: Key("y")})),
            TypeError,
            "names of outputs must be",
        ),
        (
            lambda: FeaturePipeline({"a": FeatureSpec("a", eviction_threshold=9)}),
            ValueError,
            "there is no time",
        ),
        (
            lambda: FeaturePipeline({"a": Key("a")}, [lambda frame: frame], keep_rest=True),
            ValueError,
            "keep_rest must be False beside prepare",
        ),
        (lambda: FeatureSpec("a", transform=Number("a")), ValueError, "must give one key a value"),
        (
            lambda: FeatureSpec("a", transform=cast(Any, "hash")),
            TypeError,
            "transform must be a Feature",
        ),
        (
            lambda: FeatureSpec("a", index_key="b", transform=Key("a")),
            ValueError,
            "index_key must be left out beside a transform, which names column 'a'",
        ),
        (
            lambda: FeatureSpec("a", is_timestamp=True, transform=Key("a")),
            ValueError,
            "transform of a timestamp must be Times",
        ),
        (lambda: Category(3), ValueError, "field must be given where column is a place"),
        (lambda: Key(256), ValueError, "column must be in"),
        (
            lambda: FeaturePipeline({"x": [FeatureSpec("a"), Key("b")]})(
                {"a": np.zeros((2, 2), int), "b": [1, 2]}
            ),
            ValueError,
            r"'a': column 'a' must have one value a row .* got shape \[2, 2\]",
        ),
        (
            lambda: FeaturePipeline({"x": Key("b")})({"b": np.zeros((2, 2), int)}),
            ValueError,
            "column 'b' must have one value a row",
        ),
        (
            lambda: FeaturePipeline([FeatureSpec("a")])(pa.table({"a": [1, None]})),
            ValueError,
            "'a': column 'a' must have no missing integer, got 1",
        ),
        (
            lambda: FeaturePipeline([FeatureSpec("a")])(pa.table({"a": [1.5]})),
            TypeError,
            "must be of integers or strings, got double",
        ),
        (
            lambda: FeaturePipeline([FeatureSpec("a")], keep_rest=True)(
                {"b": np.zeros(2), "c": np.zeros(2)}
            ),
            ValueError,
            r"feature 'a' is in column 'a', which a batch does not have; its columns are \['b'",
        ),
    ],
)
def test_refusals(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
