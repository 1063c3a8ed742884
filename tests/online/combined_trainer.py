# SPDX-License-Identifier: Apache-2.0
"""Trainer of the test that kills everything at once: features declared by FeatureSpec, event time,
admission, eviction, rows on SSD read ahead, a transform that learns, dropout, deltas."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import nn

from mindspore_rec import (
    FTRL,
    CacheConfig,
    CombinedOptimizer,
    FeatureBatches,
    FeatureSpec,
    LazyAdam,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
    SparseLookup,
    SsdConfig,
    create_table,
    tables_of,
)
from mindspore_rec.stream import (
    FeaturePipeline,
    KafkaSource,
    LogScale,
    Number,
    StandardScale,
    StreamingDataset,
)
from mindspore_rec.train.nn.dropout import SeededDropout
from tests.online.contents import rows_of, weights_of

__all__ = ["BATCH", "SCHEMA", "train"]

BATCH = 32
SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "item": pa.int64(),
        "views": pa.int64(),
        "price": pa.float64(),
        "t": pa.float64(),
        "click": pa.int8(),
    }
)
SPECS = [
    FeatureSpec("user", table_name="all.user", access_threshold=2, eviction_threshold=2000),
    FeatureSpec("item", table_name="all.item", access_threshold=3, eviction_threshold=1200),
    FeatureSpec("t", is_timestamp=True),
]


class Scaled:
    """Leaves ids and times as they are, for FeatureSpecs to read, and scales numbers by what it has
    learned of the stream."""

    column_names = ("user", "item", "t", "dense", "label")

    def __init__(self) -> None:
        self.numbers = FeaturePipeline(
            {
                "dense": [LogScale("views", running=True), StandardScale("price")],
                "label": Number("click"),
            }
        )

    def __call__(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        raw = {name: rows[name].to_numpy(zero_copy_only=False) for name in ("user", "item", "t")}
        return {**raw, **self.numbers(rows)}

    def state_dict(self) -> dict[str, Any]:
        return self.numbers.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers.load_state_dict(state)


class Net(nn.Cell):
    """A user's and an item's row, and numbers, below a layer with dropout."""

    def __init__(self, rows: Path, prefetch: int) -> None:
        super().__init__()

        def table(name: str, dim: int, first: str) -> Any:
            cache = CacheConfig(
                host_rows=110, ssd=SsdConfig(rows, direct=False), prefetch=prefetch,
                leftover="discard",  # of a life that was killed: older than the checkpoint
            )  # fmt: skip
            return create_table(ms.int64, dim, name, first, specs=SPECS, cache=cache)

        self.user = SparseLookup(table("all.user", 4, "normal"), SPECS[0])
        self.item = SparseLookup(table("all.item", 2, "zeros"), SPECS[1])
        self.hidden = nn.Dense(8, 8)
        self.dropout = SeededDropout(8, 0.25)
        self.out = nn.Dense(8, 1)

    def construct(self, user, item, dense):
        rows = ms.ops.concat((self.user(user), self.item(item), dense), 1)
        return self.out(self.dropout(ms.ops.relu(self.hidden(rows))))


def train(options: dict[str, Any], callbacks: Any) -> None:
    """Trains from the last checkpoint to the end of the stream, and writes all it knows then.

    Args:
        options: as `Setting.trainer` makes them.
        callbacks: makes callbacks, given the steps that are done.
    """
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    ms.set_seed(3)
    rows = Path(options["root"]).with_suffix(".rows")
    net = Net(rows, options["prefetch"])
    item = net.item.trainable_params()
    dense = [*net.hidden.trainable_params(), *net.out.trainable_params()]
    optimizer = CombinedOptimizer(
        [
            FTRL(item, learning_rate=0.05, l1=1e-4),
            LazyAdam([*net.user.trainable_params(), *dense], learning_rate=0.02),
        ]
    )
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    source = KafkaSource(
        options["brokers"], options["topic"], SCHEMA, batch_size=BATCH,
        dead_letters=options["topic"] + ".dead",
    )  # fmt: skip
    batches = FeatureBatches(StreamingDataset(source, Scaled()), SPECS)
    validation = ProgressiveValidation(model, window=2000, every_rows=500)
    checkpoint = RecCheckpoint(
        options["root"],
        every_steps=options["every_steps"],
        delta_every_steps=options["delta_every_steps"],
        states={"validation": validation},
    )
    done = checkpoint.restore(model, batches) or 0
    steps = options["batches"] - done
    if steps:
        each = [*callbacks(done), validation, checkpoint]
        model.online_train(batches, each, progress=False, max_steps=steps)
    out = Path(options["out"])
    out.with_suffix(".json").write_text(json.dumps([t.stats() for t in tables_of(net)]))
    beside = out.with_name("partial.npz")
    np.savez(beside, **contents(model, batches, validation))
    os.replace(beside, out)


def contents(
    model: RecModel, batches: FeatureBatches, validation: ProgressiveValidation
) -> dict[str, np.ndarray]:
    """Everything, in an order that does not depend on how it came to be."""
    found: dict[str, Any] = rows_of(model) | weights_of(model, "all.")
    seen = validation.state_dict()
    found.update({f"validation {name}": np.asarray(value) for name, value in seen.items()})
    place = batches.state_dict()
    del place["source"]["dead_marks"]  # where a later run looks for letters, not what they are
    stream = json.dumps(place, sort_keys=True)
    found["stream"] = np.frombuffer(stream.encode(), np.uint8)
    return found
