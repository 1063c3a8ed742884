# SPDX-License-Identifier: Apache-2.0
"""A value has one key in every source of rows, and different values never get the same key.

A source may refuse a value. It must not read the value as a different one: earlier versions read
unsigned integers of CSV files as rounded floats, and '007' as 7.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mindspore_rec import Schema
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn
from tests.support.nightly import examples

_WHOLE = st.one_of(
    st.integers(-9, 9),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**63 + 1, 2**64 - 1]),
)
_TEXTS = st.one_of(
    st.sampled_from(["7", "007", "7.0", "1e3", "1000", "-0", "0", "true", "True", "1", "NA"]),
    st.sampled_from(["null", "None", "-", "2024-01-01", "12:30", "1,5", '5"', "a;b", "ä", " x"]),
    _WHOLE.map(str),
    st.integers(10**24, 10**25).map(str),
)


def sources(frame: pd.DataFrame, folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield a name and a source for each way in which the rows of a data frame can be read."""
    yield "frame", frame
    yield "table", pa.Table.from_pandas(frame)
    frame.to_parquet(folder / "rows.parquet")
    yield "parquet", folder / "rows.parquet"
    frame.to_csv(folder / "rows.csv", index=False)
    yield "csv", folder / "rows.csv"
    frame.to_json(folder / "rows.jsonl", orient="records", lines=True)
    yield "jsonl", folder / "rows.jsonl"


_OF_KIND: dict[str, Callable[[Any], Any]] = {"text": str, "whole": int}


@pytest.mark.parametrize("kind", ["text", "whole"])
@examples(40, 400)
@given(data=st.data())
def test_categories_keep_their_keys_or_are_refused(kind: str, data: st.DataObject) -> None:
    texts = _TEXTS if kind == "text" else _WHOLE.map(str)
    kinds = st.lists(_WHOLE, min_size=1, max_size=6), st.lists(texts, min_size=1, max_size=6)
    values: list[Any] = data.draw(kinds[0] | kinds[1])
    schema = Schema([CategoryColumn("c", values=kind), LabelColumn("y")], embedding_dim=1)
    if all(isinstance(each, int) for each in values):
        dtype = np.uint64 if max(values) >= 2**63 else np.int64
        if min(values) < 0 and dtype == np.uint64:
            values = [each for each in values if each >= 0]
        frame = pd.DataFrame({"c": np.array(values, dtype), "y": [1] + [0] * (len(values) - 1)})
    else:
        frame = pd.DataFrame({"c": values, "y": [1] + [0] * (len(values) - 1)})
    keys: dict[Any, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources(frame, Path(folder)):
            try:
                (batch,) = read(source, schema).batches(len(values)).read()
                ids = schema.arrays_of(batch.plain)["ids"][:, 0]
            except ValueError:
                assert name != "parquet" or kind == "whole", values  # of its own types
                continue
            for value, key in zip(values, ids.tolist(), strict=True):
                assert keys.setdefault(_OF_KIND[kind](value), key) == key, (name, value)
    assert len(set(keys.values())) == len(keys)


@examples(40, 400)
@given(numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_the_same_from_every_source(numbers: list[float]) -> None:
    schema = Schema([CategoryColumn("c"), NumberColumn("n", "none"), LabelColumn("y")])
    labels = [1] + [0] * (len(numbers) - 1)
    frame = pd.DataFrame({"c": labels, "n": np.array(numbers), "y": labels})
    schema.fit(frame)
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources(frame, Path(folder)):
            (batch,) = read(source, schema).batches(len(numbers)).read()
            read_numbers = schema.arrays_of(batch.plain)["numbers"][:, 0]
            if name == "jsonl":  # pandas writes 10 digits
                np.testing.assert_allclose(read_numbers, numbers, 1e-6, 1e-9)
            else:
                np.testing.assert_array_equal(read_numbers, np.array(numbers, np.float32))
