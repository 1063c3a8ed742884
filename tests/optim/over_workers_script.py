# SPDX-License-Identifier: Apache-2.0
"""Trains a small network, alone or as one of several workers, and writes what came out.

Usage: over_workers_script.py DIRECTORY graph|pynative LIFE [WORKERS], where LIFE says which network
and optimizer, and WORKERS, without a launcher, whose batches to concatenate.
"""

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import mindspore_rec.optim as optim
from mindspore_rec import (
    CountAdmission,
    EmbeddingBag,
    Eviction,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    TableConfig,
    tables_of,
)
from mindspore_rec.parallel import WorkerGroup, worker_group

STEPS = 12
COMPARED = 100  # dense parameters are compared every so many steps
SAMPLES = {1: [60], 2: [36, 24], 3: [30, 0, 30]}  # of each worker's batch, by number of workers
IDS = 8


class Net(nn.Cell):
    """Two tables of one key space, a shared one, bags and a group of three placements."""

    def __init__(self, bfloat16: bool) -> None:
        super().__init__()
        wide = TableConfig(1, name="wide", initializer=0.1, eviction=Eviction(max_idle_seconds=50))
        deep = TableConfig(4, name="deep", admission=CountAdmission(3), initializer=0.05)
        narrow = ms.bfloat16 if bfloat16 else ms.float32
        shared = TableConfig(
            4, name="shared", gradient_dtype=narrow, value_dtype=narrow, state_dtype=narrow
        )
        bags = TableConfig(4, name="bags", placement="owner", owner=1)
        group = [
            TableConfig(4, name="group.sharded"),
            TableConfig(4, name="group.replicated", placement="replicated"),
            TableConfig(4, name="group.static", vocab_size=50, out_of_range="zeros"),
        ]
        self.wide = HashEmbeddingLookup(config=wide, padding_key=3)
        self.deep = HashEmbeddingLookup(config=deep)
        self.shared = MapParameter(config=shared)
        self.left = HashEmbeddingLookup(table=self.shared)
        self.right = HashEmbeddingLookup(table=self.shared)
        self.bags = EmbeddingBag(config=bags, mode="mean")
        self.group = GroupedEmbedding(config=group)
        self.dense = nn.Dense(IDS * 4 + 4 * 6, 1)
        self.flatten = nn.Flatten()

    def construct(self, ids: Tensor) -> Tensor:
        deep = self.flatten(self.deep(ids))
        others = self.flatten(self.group(ids[:, :3]))
        pairs = ops.concat((self.left(ids[:, 0]), self.right(ids[:, 1])), 1)
        x = ops.concat((deep, others, pairs, self.bags(ids)), 1)
        return self.dense(x) + self.wide(ids).sum(axis=1)


def batches(seed: int, workers: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each worker's batch of a step; of one without samples some batch."""
    rng = np.random.default_rng(seed)
    found = []
    for n in SAMPLES[workers]:
        rows = n or 8
        ids = rng.integers(0, 60, (rows, IDS)) * (1 + 10**6 * rng.integers(0, 2, (rows, IDS)))
        found.append((ids.astype(np.int64), rng.random((rows, 1), np.float32)))
    return found


def optimizer_of(net: Net, life: str) -> nn.Cell:
    if life == "combined":
        anchor = net.wide.embedding_table.anchor
        wide = [p for p in net.trainable_params() if p is anchor]
        rest = [p for p in net.trainable_params() if p is not anchor]
        assert wide and rest
        return optim.CombinedOptimizer(
            [
                optim.Adagrad(wide, learning_rate=0.05),
                optim.Momentum(rest, learning_rate=0.05, momentum=0.9),
            ],
            clip_global_norm=0.5,
        )
    return optim.Adagrad(
        net.trainable_params(),
        learning_rate=0.05,
        weight_decay=0.01,
        loss_scale=4.0,
        clip_global_norm=None if life == "bfloat16" else 0.5,
    )


def main() -> None:
    directory, mode, life = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    group = worker_group()
    workers = group.size if group.size > 1 else int(sys.argv[4])
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    net = Net(life == "bfloat16")
    rng = np.random.default_rng(1 if group.rank == 0 else 77 + group.rank)
    for p in net.dense.get_parameters():  # those of worker 0 count
        p.set_data(Tensor(rng.normal(0, 0.1, p.shape).astype(np.float32)))
    loss, scale = nn.WithLossCell(net, nn.MSELoss()), 4.0 if life != "combined" else 1
    step = nn.TrainOneStepCell(loss, optimizer_of(net, life), scale)
    losses, evaluated = [], []
    for s in range(STEPS):
        parts = batches(s, workers)
        used = [part for part, n in zip(parts, SAMPLES[workers], strict=True) if n > 0]
        if group.size > 1:
            group.begin_step(s, SAMPLES[workers])
            ids, labels = parts[group.rank]
        else:
            ids = np.concatenate([part[0] for part in used])
            labels = np.concatenate([part[1] for part in used])
        for table in tables_of(net):
            if table.name == "wide":
                table.set_event_time(1000 + 20 * s)
        step.set_train(True)
        losses.append(float(step(Tensor(ids), Tensor(labels)).asnumpy()))
        if s % 4 == 3:
            if group.size > 1:
                group.begin_step(s, [1] * workers)
            net.set_train(False)
            evaluated.append(net(Tensor(parts[0][0])).asnumpy())
            step.set_train(True)
    saved = {"losses": np.array(losses), "evaluated": np.concatenate(evaluated)}
    for p in step.get_parameters():
        if getattr(p, "mindspore_rec_table", None) is None:
            saved["dense/" + p.name] = p.asnumpy()
    for table in tables_of(net):
        rows = table._synchronised().export_rows(with_state=True)
        order = np.argsort(rows["keys"])
        for field in ("keys", "values", "states", "counts"):
            saved[f"table/{table.name}/{field}"] = rows[field][order]
    directory.mkdir(exist_ok=True)
    np.savez(directory / f"{group.rank}.npz", **saved)
    errors: dict[str, object] = {}
    if group.size > 1:
        errors["by_handle"] = trained_by_handle(group)
        errors["error"] = failure(net, group.rank)
        if mode == "graph":  # where two hundred steps are quick
            errors["differ"] = difference(net, step, Tensor(ids), Tensor(labels), group.rank)
    (directory / f"{group.rank}.json").write_text(json.dumps(errors))
    group.finish()


def trained_by_handle(group: WorkerGroup) -> list[float]:
    """Return row 7, which all workers have trained, and each worker's own, by handles."""
    table = MapParameter(config=TableConfig(1, name="by_handle", initializer=1.0))
    optimizer = optim.SGD([table.anchor], learning_rate=0.5)
    group.begin_step(0, [1] * group.size)
    rows, handles = table.lookup_with_handles(np.array([7, 8 + group.rank]))
    assert rows.tolist() == [[1.0], [1.0]]
    optimizer.apply_by_handle(np.full((2, 1), group.rank + 1.0, np.float32), handles)
    lookup = HashEmbeddingLookup(table=table)
    lookup.set_train(False)
    return lookup(Tensor(np.arange(7, 8 + group.size))).asnumpy().reshape(-1).tolist()


def failure(net: Net, rank: int) -> str:
    """Return what is raised where worker 1 alone looks up a bad id, and see that all goes on."""
    static = HashEmbeddingLookup(config=TableConfig(2, name="after")).embedding_table
    grouped = GroupedEmbedding(
        config=[TableConfig(2, name=f"error.{i}", vocab_size=10) for i in range(2)]
    )
    grouped.set_train(False)
    good = Tensor(np.array([[1, 2]], np.int64))
    bad = Tensor(np.array([[1, 12]], np.int64))
    try:
        grouped(bad if rank == 1 else good).asnumpy()
    except RuntimeError as error:
        assert grouped(good).shape == (1, 2, 2)
        assert static.name == "after"
        return str(error)
    return ""


def difference(net: Net, step: nn.Cell, ids: Tensor, labels: Tensor, rank: int) -> str:
    """Return what is raised after worker 1 alone has changed a dense parameter."""
    for s in range(STEPS, 2 * COMPARED + 1):
        if rank == 1 and s == COMPARED + 1:
            net.dense.bias.set_data(net.dense.bias + 1e-6)
        try:
            step(ids, labels).asnumpy()
        except RuntimeError as error:
            return f"{s}: {error}"
    return ""


if __name__ == "__main__":
    main()
