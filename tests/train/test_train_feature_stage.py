# SPDX-License-Identifier: Apache-2.0
"""One FeaturePipeline for tables, training on batches and evaluation."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    AUC,
    FeatureBatches,
    FeatureSpec,
    LazyAdam,
    RecModel,
    SparseLookup,
    create_table,
    sparse_lookup,
)
from mindspore_rec.stream import Category, FeaturePipeline, MinMaxScale, Number
from tests.support.networks import LogitBeside

pytestmark = pytest.mark.usefixtures("graph_mode")


def stage(table: str) -> FeaturePipeline:
    user = FeatureSpec(
        "user",
        table_name=table,
        access_threshold=2,
        eviction_threshold=3600,
        transform=Category("name", field="user"),
    )
    return FeaturePipeline(
        {
            "user": user,
            "numbers": MinMaxScale("price"),
            "label": Number("click"),
            "time": FeatureSpec("time", is_timestamp=True),
        }
    )


def raw(steps: int, first: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(first)
    batches = []
    for step in range(first, first + steps):
        names = rng.integers(0, 8, 16)
        batches.append(
            {
                "name": np.array([f"u{n}" for n in names], object),
                "price": np.full(16, 10.0 * step) * (np.arange(16) > 0),
                "time": np.full(16, 1_700_000_000 + step),
                "click": (names % 2).astype(np.float32),
            }
        )
    return batches


@pytest.mark.parametrize("kind", ["dicts", "dataset"])
def test_tables_training_and_evaluation_take_the_same_object(unique: Any, kind: str) -> None:
    name = unique()
    pipeline = stage(name)
    table = create_table(ms.int64, 4, name, "normal", specs=pipeline)
    net = LogitBeside(SparseLookup(table, pipeline.specs[0]), 4, 1)
    model = RecModel(
        net,
        nn.BCEWithLogitsLoss(),
        LazyAdam(net.trainable_params(), learning_rate=0.05),
        {"auc": AUC(from_logits=True)},
    )
    train, held = raw(60), raw(4, first=1000)
    source: Any = train
    if kind == "dataset":
        columns = list(train[0])
        rows = [
            tuple(np.asarray(b[c], str if c == "name" else None) for c in columns) for b in train
        ]
        source = ds.GeneratorDataset(lambda: iter(rows), columns, shuffle=False)
    model.train(1, FeatureBatches(source, pipeline, net), progress=False)
    assert pipeline.state_dict()["numbers"] == [[0.0, 590.0]]
    assert table.event_time == 1_700_000_059
    assert table.stats()["rows"] == 8
    figures = model.eval(FeatureBatches(held, pipeline, is_train=False), progress=False)
    assert figures["auc"] > 0.95
    assert pipeline.state_dict()["numbers"] == [[0.0, 590.0]]  # evaluation teaches nothing
    assert table.event_time == 1_700_000_059
    made = pipeline.apply(held[0], ["user"])
    found = sparse_lookup(
        table, pipeline.specs[0], False, batch={"user": Tensor(made["user"])}
    ).asnumpy()
    assert found.shape == (16, 4) and not np.array_equal(found[0], np.zeros(4))
