# SPDX-License-Identifier: Apache-2.0
"""A model with crossed columns and statistics of labels: trained, saved, loaded and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mindspore_rec import FeatureBatches, RecModel, Schema, load, models, tables_of
from mindspore_rec.common.data.label_levels import label_levels
from mindspore_rec.data import Sample, read
from mindspore_rec.feature import (
    CategoryColumn,
    CrossColumn,
    IgnoredColumn,
    LabelColumn,
    TargetStatistics,
    TimeColumn,
)
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.onnx_command import main as export_command


def visits(rows: int, seed: int) -> pd.DataFrame:
    """Return rows in which the label depends on the user, and on page and hour together."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "user": rng.integers(0, 40, rows),
            "page": rng.integers(0, 20, rows),
            "note": [f"n{each}" for each in rng.integers(0, 3, rows)],
            "ts": 1_700_000_000 + 3600 * rng.integers(0, 48, rows),
        }
    )
    hour = frame["ts"] // 3600 % 24
    score = frame["user"] % 5 + 4 * ((frame["page"] * 7 + hour * 3) % 5 > 2)
    frame["clicked"] = (score + rng.normal(size=rows) > 4).astype(int)
    return frame


def schema_of(by: str) -> Schema:
    columns = [
        CategoryColumn("user", statistics=by),
        CategoryColumn("page"),
        IgnoredColumn("note"),
        TimeColumn("ts"),
        CrossColumn("page_hour", ("page", "ts.hour"), statistics=by),
        CrossColumn("page_note", ("page", "note"), embedding_dim=2),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=8)


@pytest.mark.parametrize("by", ["folds", "past"])
def test_trained_saved_loaded_exported_and_served(
    by: str, tmp_path: Path, unique: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms.set_seed(3)
    rows, test = visits(6000, 0), visits(500, 1)
    model = RecModel(models.DCNv2(schema_of(by), hidden=(16,), name=unique(), seed=1))
    model.fit(4, rows, test, progress=False)
    schema = model.schema
    assert schema is not None and schema.numbers == (
        "user.mean", "user.count", "page_hour.mean", "page_hour.count",
    )  # fmt: skip
    raw = test.drop(columns=["clicked"])
    answers = model.predict(raw)
    metrics = model.eval(test, progress=False)
    assert metrics["auc"] > 0.9
    model.save(tmp_path / "visits.model")
    monkeypatch.setattr("os.nice", lambda _: 0)
    for runtime in ("mindspore", "onnxruntime"):
        if runtime == "onnxruntime":
            assert export_command([str(tmp_path / "visits.model")]) == 0
        with Predictor(tmp_path / "visits.model") as predictor:
            assert predictor.status().runtime == runtime
            assert sorted(predictor.raw_columns or []) == ["note", "page", "ts", "user"]
            served = np.asarray(predictor.predict(raw)).reshape(-1)
        np.testing.assert_allclose(served, answers, atol=1e-6)
    loaded = load(tmp_path / "visits.model")
    np.testing.assert_allclose(loaded.predict(raw), answers, atol=1e-6)
    loaded.train(1, rows, progress=False)


def test_training_reads_arrays_that_another_engine_made(tmp_path: Path, unique: Any) -> None:
    frame = visits(2000, 0)
    name = unique()

    def answers(by_engine: bool) -> np.ndarray:
        ms.set_seed(3)
        schema = schema_of("folds").fit(frame)
        model = RecModel(models.DCNv2(schema, hidden=(8,), name=name, seed=1))
        rows = read(frame, schema)
        if by_engine:
            (made,) = schema.arrow_batches([pa.RecordBatch.from_pandas(frame)])
            pq.write_table(pa.Table.from_batches([made]), tmp_path / "part0.parquet")
            batches: Any = read(tmp_path).batches(256, shuffle=True, seed=0)
            batches = FeatureBatches(batches, schema.received())
            levels = label_levels(schema, rows)  # arrays do not tell where a network starts
            assert levels is not None
            model.predict_network.start_at(levels.means, levels.spreads)
        else:
            batches = rows.batches(256, shuffle=True, seed=0)
        model.train(1, batches, progress=False)
        answered = model.predict(frame[:100])
        for table in tables_of(model.predict_network):
            table.close()
        return answered

    np.testing.assert_array_equal(answers(True), answers(False))


def test_statistics_learn_from_all_rows_and_count_thinned_rows_by_their_weight(unique: Any) -> None:
    frame = visits(6000, 0)
    model = RecModel(models.LogisticRegression(schema_of("folds"), name=unique()))
    schema = model.schema
    assert schema is not None
    rows = read(frame, schema, sample=Sample(0.3, seed=2))
    model.train(1, rows, progress=False)
    numbers = schema.pipeline._outputs[1].members
    (statistics,) = [each for each in numbers if isinstance(each, TargetStatistics)]
    counted = statistics._rows.total(np.zeros(1, np.int64))[0, 0]
    assert len(rows) < 0.8 * len(frame) and abs(counted / len(frame) - 1) < 0.05
