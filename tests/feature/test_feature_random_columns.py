# SPDX-License-Identifier: Apache-2.0
"""Columns of every type in every container mean one thing to every reader, or are refused by all.

A column is drawn as Python values of one kind, put into a container (a list, NumPy, pandas in its
many types, Arrow's types, dictionaries, run-end encoding), cut into chunks, and sliced out of more
values. `category_keys` and a FeaturePipeline over a dict, a DataFrame, a Table and a RecordBatch
read it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, strategies as st

from mindspore_rec import FeatureSpec, category_keys
from mindspore_rec.stream import Category, FeaturePipeline, Key, Number, QuantileScale, TimePart
from tests.feature.test_feature_hashing import model_key
from tests.support.nightly import examples

NAMES = st.sampled_from(["user", "col 1", "naïve'", "ids[0]"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
SMALL = st.integers(-100, 100)
UTC = datetime.timezone.utc

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "texts": TEXTS,
    "ints": SMALL,
    "large ints": st.integers(-(2**63), 2**63 - 1),
    "whole floats": SMALL.map(float),
    "floats": st.floats(-1e6, 1e6).filter(lambda x: x != int(x)),
    "bools": st.booleans(),
    "timestamps": st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2090, 1, 1)),
    "dates": st.dates(datetime.date(1990, 1, 1), datetime.date(2090, 1, 1)),
    "durations": st.timedeltas(datetime.timedelta(0), datetime.timedelta(99)),
    "decimals": st.decimals(-99, 99, places=1, allow_nan=False),
    "bytes": st.binary(min_size=1, max_size=4),
    "lists": st.lists(SMALL, min_size=2, max_size=2),
    "structs": st.fixed_dictionaries({"a": SMALL}),
}
ARROW: dict[str, list[pa.DataType]] = {
    "texts": [pa.string(), pa.large_string(), pa.string_view()],
    "ints": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.float32()],
    "large ints": [pa.int64()],
    "whole floats": [pa.float64(), pa.float32()],
    "floats": [pa.float64()],
    "bools": [pa.bool_()],
    "timestamps": [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s", "UTC")],
    "dates": [pa.date32(), pa.date64()],
    "durations": [pa.duration("us")],
    "decimals": [pa.decimal128(5, 1), pa.decimal256(5, 1)],
    "bytes": [pa.binary(), pa.large_binary(), pa.binary_view()],
    "lists": [pa.list_(pa.int64()), pa.large_list(pa.int64())],
    "structs": [pa.struct({"a": pa.int64()})],
}
PANDAS: dict[str, list[str]] = {
    "texts": ["object", "str", "string[python]", "string[pyarrow]", "category"],
    "ints": ["object", "Int8", "Int64", "int64[pyarrow]", "category", "float64", "Float32"],
    "large ints": ["object", "Int64"],
    "whole floats": ["object", "float64", "float32", "Float64", "double[pyarrow]", "category"],
    "floats": ["object", "float64", "Float64", "category"],
    "bools": ["object", "boolean", "bool[pyarrow]", "category"],
    "timestamps": ["object", "datetime64[us]", "datetime64[s, UTC]", "timestamp[us][pyarrow]"],
    "dates": ["object", "category", "period[D]"],
    "durations": ["object", "timedelta64[us]"],
    "decimals": ["object"],
    "bytes": ["object"],
    "lists": ["object"],
    "structs": ["object"],
}
HASHED = {"texts", "ints", "large ints", "whole floats"}
NUMBERS = {"ints", "whole floats", "floats", "bools"}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, list[Any], Any]:
    """Draw a kind of values, the values, and a column of them."""
    kind = draw(st.sampled_from(sorted(VALUES)))
    missing = draw(st.booleans())
    each = VALUES[kind] | st.none() if missing else VALUES[kind]
    values = draw(st.lists(each, min_size=1, max_size=12))
    make = draw(st.sampled_from([as_list, as_numpy, as_arrow, as_arrow, as_pandas, as_pandas]))
    return kind, values, make(draw, kind, values)


def as_list(draw: st.DrawFn, kind: str, values: list[Any]) -> Any:
    return values


def as_numpy(draw: st.DrawFn, kind: str, values: list[Any]) -> Any:
    made = np.empty(len(values), object)
    made[:] = values
    plain = None not in values and kind in HASHED | NUMBERS
    return np.array(values) if plain and draw(st.booleans()) else made


def as_pandas(draw: st.DrawFn, kind: str, values: list[Any]) -> Any:
    dtype: Any = draw(st.sampled_from(PANDAS[kind]))
    if kind == "texts" and draw(st.booleans()):
        dtype = pd.ArrowDtype(draw(st.sampled_from(ARROW["texts"][:2])))
    if dtype == "float32" or dtype == "float64":
        values = [np.nan if each is None else each for each in values]
    if dtype == "category":
        made = pd.Series(pd.Categorical(values))
    else:
        made = pd.Series(values, dtype="object").astype(dtype)
    parts = [made.iloc[a:b] for a, b in cuts(draw, len(values))]
    return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def as_arrow(draw: st.DrawFn, kind: str, values: list[Any]) -> Any:
    type_ = draw(st.sampled_from(ARROW[kind]))
    chunks = [arrow_chunk(draw, type_, values[a:b]) for a, b in cuts(draw, len(values))]
    same = len({chunk.type for chunk in chunks}) == 1
    if len(chunks) > 1 and not same:
        chunks = [arrow_chunk(draw, type_, values, plain=True)]
    return chunks[0] if len(chunks) == 1 and draw(st.booleans()) else pa.chunked_array(chunks)


def arrow_chunk(
    draw: st.DrawFn, type_: pa.DataType, values: list[Any], plain: bool = False
) -> pa.Array:
    """Return values that are a slice of more of them, and may be encoded."""
    before, after = (draw(st.integers(0, min(2, len(values)))) for _ in range(2))
    whole = pa.array([*values[:before], *values, *values[len(values) - after :]], type_)
    made = whole.slice(before, len(values))
    form = "plain" if plain else draw(st.sampled_from(["plain", "dictionary", "runs"]))
    if form == "dictionary":
        encoded = dictionary(draw, whole)
        return made if encoded is None else encoded.slice(before, len(values))
    if form == "runs":
        try:
            return pc.run_end_encode(whole).slice(before, len(values))
        except pa.ArrowNotImplementedError:
            return made
    return made


def dictionary(draw: st.DrawFn, whole: pa.Array) -> pa.Array | None:
    """Return a dictionary whose entries may be unused, twice there, or missing."""
    index = draw(st.sampled_from([pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()]))
    places = [None if not v.is_valid and draw(st.booleans()) else i for i, v in enumerate(whole)]
    try:
        return pa.DictionaryArray.from_arrays(pa.array(places, index), whole)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def cuts(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    inside = draw(st.lists(st.integers(0, length), max_size=3))
    ends = [0, *sorted(inside), length]
    return list(zip(ends[:-1], ends[1:], strict=True))


def readers(name: str, column: Any, output: Any) -> dict[str, Callable[[], Any]]:
    """Return the ways to an output of a pipeline."""
    pipeline = FeaturePipeline({output.name if isinstance(output, FeatureSpec) else "x": output})
    ways: dict[str, Any] = {"dict": {name: column}}
    if isinstance(column, pd.Series):
        ways["frame"] = pd.DataFrame({name: column})
    if isinstance(column, pa.Array):
        ways["batch"] = pa.RecordBatch.from_arrays([column], [name])
        ways["twice"] = pa.Table.from_batches([pa.RecordBatch.from_arrays([column], [name])] * 2)
    if isinstance(column, pa.ChunkedArray):
        ways["table"] = pa.Table.from_arrays([column], [name])

    def read(way: str) -> list[Any]:
        (made,) = pipeline.apply(ways[way]).values()
        if way == "twice":
            half = len(made) // 2
            assert (made[:half] == made[half:]).all()
            made = made[:half]
        return list(made.reshape(-1).tolist())

    return {way: lambda way=way: read(way) for way in ways}  # type: ignore[misc]


def outcomes(name: str, ways: dict[str, Callable[[], Any]]) -> Any:
    """Return what all ways have led to: the values, or None where all have refused."""
    made: dict[str, Any] = {}
    for way, read in ways.items():
        try:
            made[way] = read()
        except (TypeError, ValueError) as error:
            made[way] = None
            text = str(error)
            assert repr(name) in text and "\n" not in text, (way, text)
    first = next(iter(made.values()))
    assert all(each == first for each in made.values()), made
    return first


@examples(200, 6000)
@given(NAMES, columns())
def test_keys_of_any_column(name: str, drawn: tuple[str, list[Any], Any]) -> None:
    kind, values, column = drawn
    ways = readers(name, column, Category(name))
    ways["category_keys"] = lambda: category_keys(name, column).tolist()
    found = outcomes(name, ways)
    if kind in HASHED:
        whole = [int(v) if isinstance(v, float) else v for v in values]
        assert found == [model_key(name, each) for each in whole]
    elif all(each is None for each in values):
        assert found in (None, [model_key(name, None)] * len(values))
    else:
        assert found is None


@examples(200, 6000)
@given(columns())
def test_keys_as_they_are_of_any_column(drawn: tuple[str, list[Any], Any]) -> None:
    kind, values, column = drawn
    found = outcomes("user", readers("user", column, FeatureSpec("user")))
    floats = not isinstance(column, list) and "float" in str(getattr(column, "dtype", ""))
    if kind in ("ints", "large ints") and None not in values and not floats:
        assert found in (None, values)  # None: Arrow's floats
    elif kind == "texts":
        expected = [model_key("user", each) for each in values]
        is_typed = any(each is not None for each in values)
        assert found == expected or (found is None and not is_typed)  # pandas: floats
    keys = outcomes("user", readers("user", column, Key("user")))
    assert keys is None or keys == values


@pytest.mark.filterwarnings("ignore:column 'price'. the scale has learned nothing")
@examples(200, 6000)
@given(columns())
def test_numbers_of_any_column(drawn: tuple[str, list[Any], Any]) -> None:
    kind, values, column = drawn
    found = outcomes("price", readers("price", column, Number("price", missing=-7.0)))
    if kind in NUMBERS:
        numbers = [-7.0 if each is None else float(each) for each in values]
        assert found == np.array(numbers, np.float32).tolist()
    elif kind != "large ints" and any(each is not None for each in values):
        assert found is None
    scale = QuantileScale("price", buckets=4)
    ways = readers("price", column, scale)
    ways["scaled"] = lambda: scale.scaled(column).tolist()
    outcomes("price", ways)


@examples(200, 6000)
@given(columns())
def test_times_of_any_column(drawn: tuple[str, list[Any], Any]) -> None:
    kind, values, column = drawn
    part = outcomes("time", readers("time", column, TimePart("time", "month")))
    if kind in ("timestamps", "dates"):
        months = [None if each is None else each.month - 1 for each in values]
        expected = [model_key("time.month", each) for each in months]
        assert part == expected or (kind == "dates" and part is None)
    elif kind == "texts" and any(each is not None for each in values):
        assert part is None
