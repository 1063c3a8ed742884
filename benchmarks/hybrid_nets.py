# SPDX-License-Identifier: Apache-2.0
"""Networks and batches for `hybrid_parallel.py` and `two_hosts.py`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from model_step_nets import FIELDS, NUMBERS, Loss, network

import mindspore_rec as mr
from mindspore_rec import tables_of
from mindspore_rec.nn import MLP
from mindspore_rec.parallel import worker_group

DIM = 16
# Hidden layers of each Wide & Deep model; `None` for models of other kinds.
MODELS: dict[str, list[int] | None] = {
    "wide_deep": [1024, 512, 256],
    "wide_deep_128": [128],
    "dlrm": None,
}
_CHUNK = 500_000


def add_options(parser: argparse.ArgumentParser, models: Sequence[str]) -> None:
    """Add the options of networks, batches and runs; `models` is the default of `--models`."""
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(models))
    add("--batch", type=int, default=4096, help="samples in a worker's batch")
    add("--rows", type=int, default=1_000_000, help="keys in each table before")
    add("--steps", type=int, default=8, help="steps of a run")
    add("--rounds", type=int, default=5, help="runs of each way")


class WideDeep(nn.Cell):
    """Two lookups of the same ids, a perceptron and the loss.

    Args:
        name: prefix of the tables' names.
        hidden: widths of the hidden layers.
    """

    def __init__(self, name: str, hidden: list[int]) -> None:
        super().__init__()
        self.deep = mr.HashEmbeddingLookup(DIM, ms.int64, name=f"{name}.deep")
        self.wide = mr.EmbeddingBag(
            mr.TableConfig(1, name=f"{name}.wide", initializer="zeros"), "sum"
        )
        self.mlp = MLP((FIELDS * DIM, NUMBERS), hidden, out_features=1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids: Tensor, numbers: Tensor, label: Tensor) -> Tensor:
        """ids [B, 26], numbers [B, 13], label [B, 1] -> loss."""
        return self.loss(self.mlp(self.deep(ids), numbers) + self.wide(ids), label)


def make_network(model: str) -> nn.Cell:
    """Return a network with its loss; `model` is one of `MODELS`, and all workers use one seed."""
    ms.set_seed(0)
    hidden = MODELS[model]
    if hidden is not None:
        return WideDeep(f"bench.{model}", hidden)
    return Loss(network(model, "hybrid", "float32"))


def fill(net: nn.Cell, rows: int) -> None:
    """Insert the keys of the ids 0 .. rows - 1 into every table.

    Each worker inserts a part of the keys.
    """
    group = worker_group()
    for table in tables_of(net):
        for start in range(0, rows, _CHUNK):
            numbers = np.arange(start, min(start + _CHUNK, rows))[group.rank :: group.size]
            table.insert_rows(bench_common.spread_keys(numbers))
    group.barrier()


@dataclass(frozen=True)
class Batches:
    """Batches of Zipf-distributed ids.

    Args:
        ids: int64 [K, B, 26], the keys.
        numbers: float32 [B, 13].
        label: float32 [B, 1].
    """

    ids: np.ndarray
    numbers: np.ndarray
    label: np.ndarray

    @staticmethod
    def draw(batch: int, rows: int, seed: int, number: int = 4, zipf: float = 1.2) -> Batches:
        """Return `number` batches of ids below `rows`; the frequent ids differ between fields."""
        rng = np.random.default_rng(seed)
        draw = bench_common.Zipf(rows, zipf, rng).draw
        offsets = (np.arange(FIELDS) * (rows // FIELDS)).astype(np.int64)
        ids = [(draw((batch, FIELDS)) + offsets) % rows for _ in range(number)]
        numbers = rng.random((batch, NUMBERS)).astype(np.float32)
        label = (rng.random((batch, 1)) < 0.3).astype(np.float32)
        return Batches(bench_common.spread_keys(np.stack(ids)), numbers, label)

    def tensors(self) -> list[tuple[Tensor, ...]]:
        """Return the network's inputs for each batch."""
        numbers, label = Tensor(self.numbers), Tensor(self.label)
        return [(Tensor.from_numpy(each), numbers, label) for each in self.ids]

    def distinct(self) -> float:
        """Return the mean number of distinct keys per batch."""
        return float(np.mean([len(np.unique(each)) for each in self.ids]))


def train_step(net: nn.Cell) -> Any:
    """Return the training step of a network with LazyAdam over all parameters."""
    optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    return nn.TrainOneStepCell(net, optimizer).set_train()
