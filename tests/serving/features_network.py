# SPDX-License-Identifier: Apache-2.0
"""A training with features that learn, whose answers show of which state each part is.

Step v is trained on prices of which the greatest is 10 * v, so a MinMaxScale at step v makes x /
(10 * v) of a price x; every row of the table is the step's number, as in `serving_network`. As a
program it trains until it is killed: `python -m tests.serving.features_network DIRECTORY SECONDS`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.topics import topic_of_messages

os.environ.setdefault("GLOG_v", "3")

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import Tensor, nn, ops
from mindspore.train import Callback, RunContext

from mindspore_rec import (
    FeatureSpec,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    tables_of,
)
from mindspore_rec.checkpoint import Publication
from mindspore_rec.stream import (
    ArrowFormat,
    Category,
    FeaturePipeline,
    MemoryTopic,
    MinMaxScale,
    Number,
    QuantileScale,
    StopWhen,
    StreamingDataset,
    StreamSource,
    TimePart,
    pack,
)

CITIES = ["Rome", "Köln", "Oslo", ""]
BATCH = 4
INPUTS = ["ids:INT64:-1,3", "dense:FP32:-1,2"]


def pipeline() -> FeaturePipeline:
    """The one stage of training and serving."""
    return FeaturePipeline(
        {
            "ids": [
                FeatureSpec("city", table_name="features.rows"),
                FeatureSpec("user", table_name="features.rows", transform=Category("user")),
                TimePart("time", "hour"),
            ],
            "dense": [MinMaxScale("price"), QuantileScale("price", buckets=4, sample=40)],
            "label": Number("click"),
            "time": FeatureSpec("time", is_timestamp=True),
        }
    )


class Network(nn.Cell):
    """Rows of the table and the numbers, side by side."""

    def __init__(self, name: str = "features.rows") -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(1, ms.int64, name=name, serving_unknown_value=-7.0)

    def construct(self, ids: Tensor, dense: Tensor) -> Tensor:
        return ops.concat((self.rows(ids).reshape((-1, 3)), dense), 1)


def build() -> tuple[nn.Cell, FeaturePipeline]:
    """Return the network and its pipeline; the checkpoint names this function."""
    return Network(), pipeline()


def events(step: int) -> dict[str, Any]:
    """Raw columns of step 1, 2, ..."""
    return {
        "city": CITIES,
        "user": [step, 1, 2, None],
        "time": [1_700_000_000 + step] * BATCH,
        "price": [10.0 * step, 0.0, 1.0, 5.0],
        "click": [1, 0, 1, 0],
    }


class Marks(Callback):
    """After a step the rows are the step's number; and batches of which it is time are sent."""

    def __init__(self, topic: MemoryTopic, checkpoint: RecCheckpoint, pause: float) -> None:
        super().__init__()
        self.topic, self.checkpoint, self.pause = topic, checkpoint, pause

    def on_train_step_end(self, run_context: RunContext) -> None:
        step = self.checkpoint.step + 1
        (table,) = tables_of(run_context.original_args().train_network)
        keys = np.unique(pipeline().apply(events(1))["ids"])
        table.write_rows(keys, np.full((len(keys), 1), step, np.float32))
        if self.pause:
            time.sleep(self.pause)


def train(root: Path, steps: int | None, pause: float = 0.0, **cadence: Any) -> None:
    """A run, or what it goes on with."""
    ms.set_context(mode=ms.GRAPH_MODE)
    numbers = range(1, (steps or 2000) + 1)
    topic = topic_of_messages(pack(pa.table(events(step))) for step in numbers)
    net = Network()
    model = RecModel(net, nn.MSELoss("sum"), LazyAdam(net.trainable_params()))
    cadence = cadence or {"every_steps": 5, "delta_every_steps": 1}
    checkpoint = RecCheckpoint(
        root,
        publication=Publication(
            builder="tests.serving.features_network:build", builder_inputs=INPUTS
        ),
        **cadence,
    )
    stop = None if steps is None else StopWhen(batches=steps)
    source = StreamSource(topic.client(), ArrowFormat(), BATCH, stop=stop)
    with StreamingDataset(source, pipeline()) as stream:
        checkpoint.restore(model, stream)
        model.online_train(stream, [Marks(topic, checkpoint, pause), checkpoint], progress=False)
    for table in tables_of(net):
        table.close()


def asked(prices: Sequence[float | None]) -> dict[str, Any]:
    """Raw columns of known keys, without the label, for a request."""
    rows = len(prices)
    return {
        "city": [CITIES[i % 4] for i in range(rows)],
        "user": [i % 2 + 1 for i in range(rows)],
        "time": [1_700_000_000] * rows,
        "price": list(prices),
    }


if __name__ == "__main__":
    root, seconds = sys.argv[1:]
    threading.excepthook = lambda args: os._exit(1)
    train(Path(root), None, pause=float(seconds), every_steps=20, delta_every_steps=1)
