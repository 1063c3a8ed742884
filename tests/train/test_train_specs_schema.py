# SPDX-License-Identifier: Apache-2.0
"""A program with FeatureSpec goes on as a program with a Schema: the same keys, the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    FeatureBatches,
    FeatureSpec,
    HashEmbeddingLookup,
    LazyAdam,
    RecModel,
    Schema,
)
from mindspore_rec.checkpoint import load_checkpoint, save_checkpoint
from mindspore_rec.feature import CategoryColumn, LabelColumn, Times
from mindspore_rec.stream import Category, TimePart

ROWS = 600
SPECS = [
    FeatureSpec("user", access_threshold=2, eviction_threshold=10**6),
    FeatureSpec("item", table_name="items"),
    FeatureSpec("last_item", table_name="items"),
    FeatureSpec("shop", transform=Category("shop")),
    FeatureSpec("when", is_timestamp=True),
]


def table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    user = rng.integers(-5, 30, ROWS)
    item = rng.integers(0, 20, ROWS)
    return pd.DataFrame(
        {
            "user": user,
            "item": [f"i{k}" for k in item],
            "last_item": [f"i{k}" if k else None for k in rng.integers(0, 20, ROWS)],
            "shop": rng.integers(0, 4, ROWS),
            "when": 1_700_000_000 + np.arange(ROWS),
            "clicked": ((user + item) % 3 == 0).astype(np.float32),
        }
    )


def of_specs(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the arrays that the features make."""
    arrow = pa.RecordBatch.from_pandas(rows, preserve_index=False)
    columns = dict(zip(arrow.schema.names, arrow.columns, strict=True))
    (batch,) = FeatureBatches([columns], SPECS, is_train=False)
    return {name: np.asarray(array) for name, array in dict(batch).items()}


def schema_of() -> Schema:
    return Schema.from_specs(SPECS, [LabelColumn("clicked")], embedding_dim=4)


def test_keys_are_equal_bit_for_bit() -> None:
    rows, schema = table(), schema_of()
    arrays, expected = schema.fit(rows).arrays_of(rows), of_specs(rows)
    for field in schema.fields:
        np.testing.assert_array_equal(arrays["ids"][:, field.start], expected[field.name])
    assert len(schema.fields) == 4
    again = Schema.from_description(schema.describe())
    np.testing.assert_array_equal(again.arrays_of(rows)["ids"], arrays["ids"])
    assert schema.column("user").admission == 2 and schema.column("user").eviction == 10**6
    assert [group.name for group in schema.tables] == ["user", "items", "shop"]


class Old(nn.Cell):
    """The network of a program with features."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.user = HashEmbeddingLookup(4, ms.int64, name=f"{name}.user")
        self.items = HashEmbeddingLookup(4, ms.int64, name=f"{name}.items")
        self.output = nn.Dense(12, 1)

    def construct(self, user: Tensor, item: Tensor, last_item: Tensor) -> Tensor:
        vectors = (self.user(user), self.items(item), self.items(last_item))
        return self.output(ms.ops.concat(vectors, 1))


class New(Old):
    """The same network with the arrays of a schema."""

    def __init__(self, name: str, schema: Schema) -> None:
        super().__init__(name)
        self.schema = schema

    def construct(self, ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().construct(ids[:, 0], ids[:, 1], ids[:, 2])


def test_a_checkpoint_of_the_old_program_goes_on(
    tmp_path: Path, unique: Any, graph_mode: Any
) -> None:
    rows, name = table(), unique()
    arrays = of_specs(rows)
    inputs = [arrays[each] for each in ("user", "item", "last_item")]
    old = Old(name)
    model = RecModel(old, nn.BCEWithLogitsLoss(), LazyAdam(old.trainable_params(), 0.05))
    model.train(5, [(*inputs, rows[["clicked"]].to_numpy())], progress=False)
    logits = model.predict(*inputs).asnumpy()[:, 0].astype(np.float64)
    save_checkpoint(model, tmp_path / "old")
    schema = schema_of().fit(rows)
    new = New(name, schema)
    loaded = RecModel(new, optimizer=LazyAdam(new.trainable_params(), 0.05))
    load_checkpoint(loaded, tmp_path / "old")
    raw = rows.drop(columns="clicked")
    np.testing.assert_allclose(loaded.predict(raw), 1 / (1 + np.exp(-logits)), rtol=1e-6)
    before = loaded.eval(rows, progress=False)["log_loss"]
    loaded.train(5, rows, progress=False)  # it learns on
    assert loaded.eval(rows, progress=False)["log_loss"] < before


def test_what_no_column_can_be() -> None:
    for spec, words in (
        (FeatureSpec("a", index_key=1), "index_key must be the name of a column"),
        (FeatureSpec("a", faae_coefficient=2), "faae_coefficient must be 1"),
        (FeatureSpec("a", batch_size=9), "batch_size must be left out"),
        (FeatureSpec("a", transform=Category("b")), r"Category\(..., field='a'\)"),
        (FeatureSpec("a", transform=TimePart("t", "hour")), "no column has the keys of TimePart"),
    ):
        with pytest.raises(ValueError, match=words):
            Schema.from_specs([spec])
    time = FeatureSpec("t", is_timestamp=True, transform=Times("ts", "ms"))
    column = Schema.from_specs([FeatureSpec("a"), time]).time
    assert column is not None and column.unit == "ms"
    schema = Schema([CategoryColumn("a", values="key")])
    with pytest.raises(ValueError, match=r"whole numbers without missing values \(values: key\)"):
        schema.check(pa.table({"a": pa.array([1, None])}))
