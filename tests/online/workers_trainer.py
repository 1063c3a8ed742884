# SPDX-License-Identifier: Apache-2.0
"""Trainer of the tests that kill workers: `python -m mindspore_rec.launch -n N THIS JSON`.

Trains from the last checkpoint to a step, and each worker writes all it has then. Says "pid N" of
each worker; worker 0 says "restored STEP" and "step NUMBER". The JSON object has what
`workers_setting.Run` puts into it.

Every event has a row of its own, in the table `kills.seen`, from which plain SGD subtracts a
gradient of -1: so it is how often the event was trained, exactly, for any number of workers.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import nn, ops
from mindspore.train import Callback, RunContext

from mindspore_rec import (
    FTRL,
    SGD,
    CacheConfig,
    CombinedOptimizer,
    CountAdmission,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    TableConfig,
)
from mindspore_rec.parallel import worker_group
from mindspore_rec.stream import FeaturePipeline, KafkaSource, StandardScale, StreamingDataset
from mindspore_rec.train.nn.dropout import SeededDropout
from tests.online.contents import rows_of, weights_of
from tests.online.workers_setting import PARTITIONS, SCHEMA


def say(text: str) -> None:
    """One line, whole also where the process is killed."""
    os.write(1, text.encode() + b"\n")


class Net(nn.Cell):
    """Wide and deep: one table for each placement, rows that wait for admission and leave by age,
    and a table that counts events."""

    def __init__(self, dropout: float, rows_on_ssd: Path | None) -> None:
        super().__init__()
        cache = rows_on_ssd and CacheConfig(
            host_rows=40, ssd=SsdConfig(rows_on_ssd, direct=False), prefetch=2,
            leftover="discard",  # of a life that was killed: older than the checkpoint
        )  # fmt: skip

        def table(name: str, dim: int, **more: Any) -> HashEmbeddingLookup:
            config = TableConfig(dim, name=f"kills.{name}", **more)
            return HashEmbeddingLookup(config=config)

        self.user = table(
            "user", 4, admission=CountAdmission(2), eviction=Eviction(max_idle_seconds=400),
            cache=cache,
        )  # fmt: skip
        self.item = table(
            "item", 1, initializer="zeros", placement="replicated", admission=CountAdmission(3)
        )
        self.shop = table("shop", 2, placement="owner", eviction=Eviction(max_idle_seconds=250))
        self.seen = table("seen", 1, initializer="zeros")
        self.hidden = nn.Dense(8, 8)
        self.dropout = SeededDropout(8, dropout)
        self.out = nn.Dense(8, 1)

    def construct(self, ids, seen, dense):
        user, item = self.user(ids[:, 0]), self.item(ids[:, 1])
        rows = ops.concat((user, self.shop(ids[:, 2]), dense), 1)
        hidden = self.dropout(ops.relu(self.hidden(rows)))
        return ops.concat((self.out(hidden) + item, self.seen(seen)), 1)


class Loss(nn.LossBase):
    """Log loss of the first column, minus the second one, summed over rows."""

    reduction = "sum"

    def __init__(self) -> None:
        super().__init__("sum")
        self.log_loss = nn.BCEWithLogitsLoss(reduction="sum")

    def construct(self, logits, labels):
        return self.log_loss(logits[:, :1], labels) - logits[:, 1].sum()


def columns(rows: pa.RecordBatch) -> dict[str, np.ndarray]:
    """The network's inputs."""
    raw = {name: rows[name].to_numpy() for name in rows.schema.names}
    return {
        "ids": np.stack([raw["user"], raw["item"], raw["shop"]], 1),
        "seen": raw["event"],
        "dense": np.stack([raw["x"], raw["y"]], 1),
        "label": raw["click"].astype(np.float32)[:, None],
    }


class Scaled:
    """The same with numbers scaled by what was learned of the stream, of which every worker
    therefore reads all."""

    column_names = ("ids", "seen", "dense", "label")

    def __init__(self) -> None:
        self.numbers = FeaturePipeline({"dense": [StandardScale("x"), StandardScale("y")]})

    def __call__(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {**columns(rows), **self.numbers(rows)}

    def state_dict(self) -> dict[str, Any]:
        return self.numbers.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.numbers.load_state_dict(state)


class Says(Callback):
    """Worker 0 says each step."""

    def __init__(self, checkpoint: RecCheckpoint) -> None:
        super().__init__()
        self.done = checkpoint.step

    def on_train_step_end(self, run_context: RunContext) -> None:
        if worker_group().rank == 0:
            say(f"step {self.done + run_context.original_args().cur_step_num}")


def train(options: dict[str, Any]) -> None:
    group = worker_group()
    say(f"pid {os.getpid()}")
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3 + group.rank)
    root = Path(options["root"])
    net = Net(options["dropout"], root.with_suffix(".rows") if options["on_ssd"] else None)
    dense = [*net.hidden.trainable_params(), *net.out.trainable_params()]
    optimizer = CombinedOptimizer(
        [
            FTRL(net.item.trainable_params(), learning_rate=0.05, l1=1e-4),
            SGD(net.seen.trainable_params(), learning_rate=1.0),
            LazyAdam(
                [*net.user.trainable_params(), *net.shop.trainable_params(), *dense],
                learning_rate=0.02,
            ),
        ]
    )
    model = RecModel(net, Loss(), optimizer)
    partitions, batch = None, options["batch"]
    if options["divided"] == "given":
        partitions, batch = [*range(group.rank, PARTITIONS, group.size)], batch // group.size
    source = KafkaSource(
        options["brokers"], options["topic"], SCHEMA, batch_size=batch, partitions=partitions,
        event_time="t", dead_letters=options["dead"],
    )  # fmt: skip
    data = StreamingDataset(source, Scaled() if options["divided"] == "rows" else columns)
    validation = ProgressiveValidation(model, window=2000, every_rows=500)
    checkpoint = RecCheckpoint(
        root,
        every_steps=options["every_steps"],
        delta_every_steps=options["delta_every_steps"],
        states={"validation": validation},
    )
    done = checkpoint.restore(model, data) or 0
    if group.rank == 0:
        say(f"restored {done}")
    if done < options["steps"]:
        callbacks = [validation, Says(checkpoint), checkpoint]
        model.online_train(data, callbacks, progress=False, max_steps=options["steps"] - done)
    out = Path(options["out"]) / f"{group.rank}.npz"
    out.parent.mkdir(exist_ok=True)
    beside = out.with_suffix(".partial.npz")
    np.savez(beside, **rows_of(model), **weights_of(model, "kills."))
    os.replace(beside, out)


if __name__ == "__main__":
    train(json.loads(sys.argv[1]))
