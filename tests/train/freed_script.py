# SPDX-License-Identifier: Apache-2.0
"""Train networks one after another, all with tables of one name; print what memory they leave.

A line of JSON a trial: open tables, MiB resident.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec import HashEmbeddingLookup, RecModel, TrainStep, tables_of
from mindspore_rec.nn import MLP
from mindspore_rec.optim import LazyAdam
from mindspore_rec.train.parameter.table_parameter import open_tables

ROWS, DIM = 60_000, 32  # 27 MiB with Adam's moments


def net_of() -> nn.Cell:
    """Return a network of a table of that many rows and a fused layer."""
    lookup = HashEmbeddingLookup(DIM, name="trials")
    return nn.SequentialCell(lookup, nn.Flatten(), MLP(DIM, [8], out_features=1))


def trial(number: int) -> None:
    """Train a network; nothing of it is returned."""
    net = net_of()
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.01)
    ids = np.arange(ROWS, dtype=np.int32).reshape(-1, 1)
    label = np.ones((ROWS, 1), np.float32)
    if number % 2:
        model = RecModel(net, nn.MSELoss(), optimizer)
        model.train(1, [(ids, label)], progress=False)
        model.predict(ids[:4])
    else:
        loss = nn.WithLossCell(net, nn.MSELoss())
        step = TrainStep(loss, optimizer, 8.0 if number % 4 else 1.0).set_train()
        step(Tensor(ids), Tensor(label))


def closed_trial() -> None:
    """Train a network by MindSpore's own cell, which keeps it, and close its table."""
    net = net_of()
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.01)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
    step(Tensor([[1], [2]], ms.int32), Tensor(np.ones((2, 1), np.float32)))
    for table in tables_of(net):
        table.close()


def resident() -> float:
    """Return MiB of memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE if sys.argv[1] == "graph" else ms.PYNATIVE_MODE)
    for number in range(int(sys.argv[2])):
        trial(number)
        gc.collect()
        print(json.dumps({"open": len(open_tables("trials")), "mib": resident()}), flush=True)
    closed_trial()
    gc.collect()
    print(json.dumps({"closed": len(open_tables("trials"))}), flush=True)
