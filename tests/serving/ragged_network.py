# SPDX-License-Identifier: Apache-2.0
"""Networks of bags with offsets, for the tests of serving."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec import EmbeddingBag, HashEmbeddingLookup, TableConfig, tables_of
from mindspore_rec.checkpoint import save_checkpoint

DIM = 4
KEYS = 40
INPUTS = [
    "user:INT64:-1,1",
    "items:INT64:-1:offsets=starts",
    "weights:FP32:-1:offsets=starts",
    "starts:INT64:-1",
]


class Bags(nn.Cell):
    """A user's row beside bags of its items: a mean with weights, one with a padding key."""

    def __init__(self) -> None:
        super().__init__()
        self.user = HashEmbeddingLookup(DIM, ms.int64, name="ragged.user")
        self.mean = EmbeddingBag(TableConfig(DIM, name="ragged.mean"), "mean")
        self.root = EmbeddingBag(TableConfig(DIM, name="ragged.root"), "sqrtn", padding_key=3)
        self.dense = nn.Dense(3 * DIM, 2)

    def construct(self, user: Tensor, items: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        rows = self.user(user).reshape((-1, DIM))
        mean = self.mean(items, starts, weights)
        root = self.root(items, starts)
        return self.dense(ops.concat((rows, mean, root), 1))


def build() -> Bags:
    """Return the network."""
    return Bags()


def save(root: Path) -> None:
    """Save a checkpoint with rows of all keys."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build()
    rng = np.random.default_rng(0)
    for table in tables_of(net):
        rows = rng.normal(0, 1, (KEYS, table.dim)).astype(np.float32)
        table.write_rows(np.arange(KEYS, dtype=np.int64), rows)
    net.dense.weight.set_data(Tensor(rng.normal(0, 1, (2, 3 * DIM)).astype(np.float32)))
    save_checkpoint(net, root)
    for table in tables_of(net):
        table.close()


def request(rng: np.random.Generator, rows: int) -> list[Any]:
    """Return inputs of so many rows, some of which have no values; some keys are unknown."""
    sizes = rng.integers(0, 4, rows)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    count = int(sizes.sum())
    return [
        rng.integers(0, KEYS, (rows, 1)),
        rng.integers(0, KEYS + 5, count),
        rng.uniform(0.1, 2, count).astype(np.float32),
        starts,
    ]
