# SPDX-License-Identifier: Apache-2.0
"""Arrays that another engine makes batch by batch equal the arrays of a training, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mindspore_rec import Schema
from mindspore_rec.data import read
from mindspore_rec.feature import (
    CategoryColumn,
    CrossColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TimeColumn,
)


def schema_of() -> Schema:
    columns = [
        CategoryColumn("user", statistics="folds"),
        CategoryColumn("item", statistics="past"),
        CrossColumn("user_hour", ("user", "ts.hour")),
        ListColumn("tags", length=3, separator="|"),
        NumberColumn("price"),
        TimeColumn("ts", unit="ms"),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=4)


def frame(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "user": rng.integers(0, 20, rows),
            "item": [["sofa", "lamp", None][k] for k in rng.integers(0, 3, rows)],
            "tags": ["|".join("abcde"[: int(k)]) for k in rng.integers(0, 5, rows)],
            "price": rng.normal(0, 9, rows),
            "ts": 1_700_000_000_000 + 1000 * rng.integers(0, 9999, rows),
            "clicked": rng.integers(0, 2, rows),
        }
    )


def in_another_process(described: str, state: str) -> Schema:
    """Return the schema as a worker of another engine makes it."""
    schema = Schema.from_description(json.loads(described))
    schema.load_state_dict(json.loads(state))
    return schema


def test_parts_of_the_rows_give_keys_and_numbers_of_a_training(tmp_path: Path) -> None:
    rows = frame()
    whole = schema_of().fit(rows)
    expected, seconds = whole.pipeline.batch(rows, learn=False, training=True)
    # The driver learns scales and intervals of time, and the parts count the labels.
    driver = schema_of().fit(rows)
    described = json.dumps(driver.describe())
    parts = [pa.RecordBatch.from_pandas(rows[first : first + 90]) for first in range(0, 400, 90)]
    states = []
    for part in parts:
        worker = in_another_process(described, json.dumps(driver.state_dict()))
        states.append(json.loads(json.dumps(worker.fit_statistics([part]).state_dict())))
    driver.merge_statistics(states)
    assert driver.state_dict() == whole.state_dict()
    # The parts make the arrays, which are written and read as Parquet.
    for number, part in enumerate(parts):
        worker = in_another_process(described, json.dumps(driver.state_dict()))
        (made,) = worker.arrow_batches(iter([part]))
        assert made.schema.names == ["time", "ids", "numbers", "label"]
        assert made.schema.field("ids").type == pa.list_(pa.int64())
        pq.write_table(pa.Table.from_batches([made]), tmp_path / f"part{number}.parquet")
    received = driver.received()
    batches = [
        received.pipeline.batch(batch.plain, learn=False)
        for batch in read(str(tmp_path)).batches(64).read()
    ]
    assert max(time or 0 for _, time in batches) == seconds
    for name, array in expected.items():
        found = np.concatenate([made[name] for made, _ in batches])
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_rows_to_predict_need_no_label() -> None:
    schema = schema_of().fit(frame())
    rows = frame()[schema.feature_names]
    made = list(schema.arrow_batches([pa.RecordBatch.from_pandas(rows)], training=False))
    expected = schema.arrays_of(rows, with_label=False)
    assert made[0].schema.names == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(np.array(made[0][name].to_pylist(), array.dtype), array)


def test_what_cannot_be_merged_or_received() -> None:
    schema = schema_of().fit(frame())
    before = schema.state_dict()
    other = schema_of().fit(frame()[:100])
    with pytest.raises(ValueError, match="same intervals of time"):
        schema.merge_statistics([before, other.state_dict()])
    with pytest.raises(ValueError, match="state must be of a pipeline"):
        schema.merge_statistics([before, {}])
    assert schema.state_dict() == before
    (made,) = schema.arrow_batches([pa.RecordBatch.from_pandas(frame(3))])
    lists = {name: made[name].to_pylist() for name in made.schema.names}
    lists["ids"][1] = lists["ids"][1][:2]
    with pytest.raises(ValueError, match="column 'ids' must have lists of one length"):
        schema.received().pipeline.apply(pa.record_batch(lists))
    with pytest.raises(ValueError, match="learned nothing"):
        next(schema_of().arrow_batches([]))
