# SPDX-License-Identifier: Apache-2.0
"""get_insert_func: columns of raw batches to keys and event time, whole batches at a time."""

from __future__ import annotations

import datetime

import mindspore.dataset as ds
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from mindspore import Tensor

from mindspore_rec import FeaturePipeline, FeatureSpec, get_insert_func
from mindspore_rec.common.columns.columns import MAX_EVENT_TIME, event_time, key_column
from mindspore_rec.common.columns.hashing import category_keys, missing_key

TIME = FeatureSpec("time", is_timestamp=True)
LABEL = np.array([[0], [1]], np.float32)


def columns_equal(found, expected):
    found, expected = list(found), list(expected)
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert one.dtype == two.dtype
        assert np.array_equal(one, two)


# ---- one column


@given(
    hnp.arrays(
        st.sampled_from([np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]),
        hnp.array_shapes(min_dims=1, max_dims=3),
    )
)
def test_integers_are_keys_as_they_are(values):
    keys = key_column(FeatureSpec("f"), values)
    assert keys.dtype == (np.int32 if values.dtype == np.int32 else np.int64)
    assert np.array_equal(keys, values)


def test_a_strided_column_becomes_contiguous():
    keys = key_column(FeatureSpec("f"), np.arange(12).reshape(3, 4)[:, ::2])
    assert keys.flags.c_contiguous and keys.tolist() == [[0, 2], [4, 6], [8, 10]]


# NumPy drops zeros at the end of a string.
UNICODE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@given(hnp.arrays(np.dtype("<U5"), hnp.array_shapes(min_dims=1, max_dims=3), elements=UNICODE))
def test_strings_are_hashed_with_the_name_of_their_table(values):
    keys = key_column(FeatureSpec("clicked", table_name="items"), values)
    assert keys.shape == values.shape
    assert np.array_equal(keys.ravel(), category_keys("items", values.ravel()))


def test_bytes_objects_and_missing_strings():
    spec = FeatureSpec("city")
    expected = category_keys("city", ["Köln", "Rome"])
    assert np.array_equal(key_column(spec, np.array(["Köln".encode(), b"Rome"])), expected)
    found = key_column(spec, np.array(["Rome", None], object))
    assert found.tolist() == [expected[1], missing_key("city")]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (np.zeros(2, np.float32), TypeError, "'u': column 'c' must be of integers or strings, got"),
        (np.zeros(2, bool), TypeError, "'c' must be strings or integers, got bool"),
        (np.array([1, None], object), ValueError, "'c' must have no missing integer, got 1"),
        (np.array(["a", 2], object), TypeError, "'u': column 'c' must be all integers or all str"),
        (np.array(7), ValueError, "must have a row a sample, got a single value"),
        (np.array([1 << 63], np.uint64), ValueError, "range of int64, got 9223372036854775808"),
        (np.array([b"\xff"]), ValueError, "'c' must be Unicode text .*: 'utf-8' codec can't"),
        (np.array(["\ud800"]), ValueError, "'u': column 'c' must be Unicode text "),
        (np.array(["\ud800"], object), ValueError, "'u': column 'c' must be Unicode text "),
        (np.zeros(4, int), ValueError, "must have 2 rows, the feature's batch_size, got 4"),
    ],
)
def test_columns_that_are_no_keys(column, error, message):
    spec = FeatureSpec("u", index_key="c", batch_size=2 if len(column.ravel()) == 4 else None)
    with pytest.raises(error, match=message):
        key_column(spec, column)


@given(
    hnp.arrays(
        st.sampled_from([np.int64, np.float64, np.uint32]),
        hnp.array_shapes(max_dims=2),
        elements=st.integers(1, MAX_EVENT_TIME),
    )
)
def test_event_time_is_the_latest(values):
    assert event_time(TIME, values) == values.max()


def test_event_time_of_dates_and_fractions():
    day = datetime.datetime(2026, 11, 21, tzinfo=datetime.timezone.utc)
    values = np.array(["2026-11-20", "2026-11-21"], "datetime64[ns]")
    assert event_time(TIME, values) == int(day.timestamp())
    assert event_time(TIME, np.array([9.99])) == 9


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (
            np.array(["noon"]),
            TypeError,
            "'time': column 'time' must be of seconds or datetime64, g",
        ),
        (np.zeros((0, 1)), ValueError, "must have at least one time, got none"),
        (np.array(["NaT"], "datetime64[s]"), ValueError, "must have no missing time, got NaT"),
        (np.array([1.0, np.nan]), ValueError, r"must be in \[1, 4294967295\] seconds .* got nan$"),
        (np.array([0, -1]), ValueError, "seconds since 1970, got 0$"),
        (np.array([1_700_000_000_000]), ValueError, r"got 1700000000000 \(milliseconds\?\)"),
    ],
)
def test_columns_that_are_no_time(column, error, message):
    with pytest.raises(error, match=message):
        event_time(TIME, column)


# ---- batches


def raw(step=0):
    return {
        "price": np.full((2, 1), step, np.float32),
        "user": np.array([[1], [2]], np.int32) + step,
        "time": np.array([60.0, 50.0]) + step,
        "shown": np.array([["a", "b"], ["b", "a"]]),
        "label": LABEL,
    }


SPECS = [FeatureSpec("item", table_name="items", index_key="shown"), TIME, FeatureSpec("user")]


def made(step=0):
    batch = raw(step)
    return {
        "item": category_keys("items", batch["shown"].ravel()).reshape(2, 2),
        "user": batch["user"],
        "time": np.array([60 + step]),
        "price": batch["price"],
        "label": LABEL,
    }


def test_a_dict():
    found = get_insert_func(SPECS)(raw(3))
    assert list(found) == list(made())
    columns_equal(found.values(), made(3).values())


def test_tensors():
    found = get_insert_func(FeatureSpec("user"))({"user": Tensor(np.array([[4]]))})
    columns_equal(found.values(), [np.array([[4]])])


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_tuple(kind):
    specs = [
        FeatureSpec("item", table_name="items", index_key=3),
        FeatureSpec("time", is_timestamp=True, index_key=2),
        FeatureSpec("user", index_key=1),
    ]
    columns_equal(get_insert_func(specs)(kind(raw().values())), made().values())


def pipeline(size=3):
    def batches():
        for step in range(size):
            yield tuple(raw(step).values())

    return ds.GeneratorDataset(batches, list(raw()), shuffle=False)


@pytest.mark.parametrize("places", [False, True])
def test_a_dataset(places):
    specs = SPECS
    if places:
        specs = [
            FeatureSpec("item", table_name="items", index_key=3),
            FeatureSpec("time", is_timestamp=True, index_key=2),
            FeatureSpec("user", index_key=1),
        ]
    dataset = pipeline().apply(get_insert_func(specs))
    assert dataset.get_col_names() == list(made())
    rows = list(dataset.create_tuple_iterator(num_epochs=1, output_numpy=True))
    assert len(rows) == 3
    for step, row in enumerate(rows):
        columns_equal(row, made(step).values())


def test_two_features_of_one_column():
    specs = [FeatureSpec("a", index_key="shown"), FeatureSpec("b", index_key="shown")]
    batch = {"shown": raw()["shown"], "label": LABEL}
    found = get_insert_func(specs)(batch)
    assert list(found) == ["a", "b", "label"]
    assert np.array_equal(found["a"].ravel(), category_keys("a", batch["shown"].ravel()))
    dataset = ds.GeneratorDataset(lambda: iter([tuple(batch.values())]), list(batch), shuffle=False)
    (row,) = dataset.apply(get_insert_func(specs)).create_tuple_iterator(output_numpy=True)
    columns_equal(row, found.values())


@pytest.mark.parametrize(
    ("specs", "batch", "error", "message"),
    [
        (
            FeatureSpec("u", index_key="x"),
            {"y": LABEL, "z": LABEL},
            ValueError,
            r"feature 'u' is in column 'x', which a batch does not have; its columns are \['y'",
        ),
        (
            FeatureSpec("u", index_key=2),
            (LABEL, LABEL),
            ValueError,
            "'u' is in column 2, which a b",
        ),
        (
            FeatureSpec("u", index_key=0),
            {"u": LABEL},
            ValueError,
            "must be a name where batches ar",
        ),
        (
            FeatureSpec("u"),
            (LABEL,),
            ValueError,
            "'u': index_key must be a place where batches are",
        ),
        (
            [FeatureSpec("u", index_key=0), TIME],
            (np.zeros(2, int),),
            ValueError,
            "'time': index_key must be a place where batches are tuples, got 'time'",
        ),
        (
            [FeatureSpec("u"), FeatureSpec("v")],
            {"u": np.zeros((2, 3), int), "v": np.zeros(3, int)},
            ValueError,
            "features must have the same number of rows, got 2 of 'u' and 3 of 'v'",
        ),
        (
            FeatureSpec("label", index_key="u"),
            {"u": np.zeros(2, int), "label": LABEL},
            ValueError,
            "feature 'label' has the name of another column of the batch: give it another name",
        ),
        (FeatureSpec("u"), 7, TypeError, "a batch must be a dict or a tuple of columns, or a mind"),
    ],
)
def test_batches_that_do_not_fit(specs, batch, error, message):
    with pytest.raises(error, match=message):
        get_insert_func(specs)(batch)


def test_a_dataset_without_the_column_is_refused_at_once():
    with pytest.raises(ValueError, match="feature 'city' is in column 'city', which a batch does"):
        pipeline().apply(get_insert_func(FeatureSpec("city")))


def test_a_dataset_with_a_batch_that_does_not_fit_says_so():
    dataset = pipeline().apply(get_insert_func(FeatureSpec("price")))
    with pytest.raises(RuntimeError, match="feature 'price': column 'price' must be of integers"):
        next(iter(dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)))


def test_the_columns_of_a_dataset_are_not_chosen():
    with pytest.raises(ValueError, match="columns must be left out with a Dataset"):
        FeaturePipeline([FeatureSpec("user")]).apply(pipeline(), ["user"])


def test_times_have_the_batch_size():
    spec = FeatureSpec("time", is_timestamp=True, batch_size=3)
    assert event_time(spec, np.array([1, 2, 3])) == 3
    with pytest.raises(ValueError, match="column 'time' must have 3 rows"):
        event_time(spec, np.array([1, 2]))


def test_specs_are_checked():
    with pytest.raises(ValueError, match="specs must have at least one feature"):
        get_insert_func([])
