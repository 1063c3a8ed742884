# SPDX-License-Identifier: Apache-2.0
"""The network of the serving tests: an answer shows of which state each part of it is.

Training sets every row of both tables and the dense weight to the step's number, so all floats of
an answer must be the same. As a program it trains until it is killed:
`python tests/serving/serving_network.py DIRECTORY SECONDS_BETWEEN_DELTAS STEPS_BETWEEN_FULLS KEYS`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train import Callback, RunContext

from mindspore_rec import (
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    TableConfig,
    tables_of,
)
from mindspore_rec.checkpoint import Publication

FIELDS = 3
UNKNOWN = -7.0


class Marked(nn.Cell):
    """Rows of two tables and a dense weight, side by side."""

    def __init__(self, name: str = "serving", dim: int = 4, value_dtype: Any = ms.float32) -> None:
        super().__init__()
        self.one = HashEmbeddingLookup(
            config=TableConfig(
                dim,
                name=f"{name}.one",
                value_dtype=value_dtype,
                serving_unknown_value=UNKNOWN,
            )
        )
        self.two = HashEmbeddingLookup(1, ms.int64, name=f"{name}.two", serving_unknown_value=0.5)
        self.weight = Parameter(Tensor(np.zeros((1, 2), np.float32)), name="weight")
        self.width = dim * FIELDS

    def construct(self, ids: Tensor) -> Tensor:
        one = self.one(ids).reshape((-1, self.width))
        two = self.two(ids).reshape((-1, FIELDS))
        return ops.concat((one, two, ops.zeros_like(two[:, :1]) + self.weight), 1)


class Marks(Callback):
    """After a step everything is the step's number."""

    def __init__(self, net: Marked, keys: int, checkpoint: RecCheckpoint, pause: float) -> None:
        super().__init__()
        self.net, self.checkpoint, self.pause = net, checkpoint, pause
        self.keys = np.arange(keys, dtype=np.int64)

    def on_train_step_end(self, run_context: RunContext) -> None:
        step = self.checkpoint.step + 1
        for table in tables_of(self.net):
            values = np.full((len(self.keys), table.dim), step, np.float32)
            table.write_rows(self.keys, values)
        self.net.weight.set_data(Tensor(np.full((1, 2), step, np.float32)))
        if self.pause:
            time.sleep(self.pause)


def batches(count: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    numbers: Iterable[int] = itertools.count() if count is None else range(count)
    for _ in numbers:
        yield np.arange(FIELDS)[None], np.zeros((1, 1), np.float32)


def train(
    root: Path, steps: int | None, *, keys: int = 50, pause: float = 0.0, net: Any = None,
    close: bool = True, restore: int | None = None, **cadence: Any,
) -> None:  # fmt: skip
    """A run, or what it goes on with."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Marked() if net is None else net
    model = RecModel(net, nn.MSELoss("sum"), LazyAdam(net.trainable_params()))
    cadence = cadence or {"every_steps": 4, "delta_every_steps": 1}
    checkpoint = RecCheckpoint(root, data_starts_over=True, **cadence)
    checkpoint.restore(model, step=restore)
    callbacks = [Marks(net, keys, checkpoint, pause), checkpoint]
    model.online_train(batches(steps), callbacks, progress=False)
    if close:
        for table in tables_of(net):
            table.close()


def ids(rows: int = 1, first: int = 0) -> np.ndarray:
    """Keys that training has set."""
    return (first + np.arange(rows * FIELDS, dtype=np.int64)).reshape(rows, FIELDS)


MARKED = Publication(
    builder="tests.serving.serving_network:Marked",
    builder_arguments={"name": "serving"},
    builder_inputs=["ids:INT64:-1,3"],
)
"""What its training publishes, if predictors need no MindSpore."""


if __name__ == "__main__":
    root, seconds, fulls, keys = sys.argv[1:]
    train(
        Path(root), None, keys=int(keys), pause=float(seconds), every_steps=int(fulls),
        delta_every_steps=1, publication=MARKED,
    )  # fmt: skip
