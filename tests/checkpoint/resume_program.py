# SPDX-License-Identifier: Apache-2.0
"""A training over files of several epochs that may be killed at a step, as a program.

    resume_program.py DIRECTORY [STEP]

STEP is the step, over all restarts, after which the process kills itself before it saves. What each
worker has at the end of the training is in DIRECTORY.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel, tables_of
from mindspore_rec.common.parallel.group import worker_group

EPOCHS, BATCHES, ROWS = 4, 12, 8


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches whose rows have keys of their own in part."""
    rng = np.random.default_rng(5)
    return [
        (
            np.stack([np.arange(i * ROWS, (i + 1) * ROWS), rng.integers(0, 9, ROWS)], 1),
            (rng.random((ROWS, 1)) < 0.4).astype(np.float32),
        )
        for i in range(BATCHES)
    ]


class Shuffled:
    """Batches in another order in each pass, drawn from NumPy's generator."""

    def __init__(self, data: list[Any]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        for i in np.random.permutation(len(self.data)):  # noqa: NPY002
            yield self.data[i]


def network(name: str, **table: Any) -> nn.Cell:
    return nn.SequentialCell(
        HashEmbeddingLookup(4, ms.int64, name=name, **table),
        nn.Flatten(),
        nn.Dense(8, 1),
    )


class Killed(Callback):
    """kill -9 after a step, before it is saved."""

    def __init__(self, checkpoint: RecCheckpoint, step: int) -> None:
        super().__init__()
        self.checkpoint, self.step = checkpoint, step

    def on_train_step_end(self, run_context: Any) -> None:
        if self.checkpoint.step + 1 == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def contents(net: nn.Cell) -> dict[str, Any]:
    """Return digests of the tables and the bytes of dense parameters."""
    found: dict[str, Any] = {table.name: str(table.digest()) for table in tables_of(net)}
    for parameter in net.get_parameters():
        if not hasattr(parameter, "mindspore_rec_table"):
            found[parameter.name] = parameter.asnumpy().tobytes().hex()
    return found


def main(directory: str, kill_at: int) -> dict[str, Any]:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    net = network("resume.program")
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.05))
    checkpoint = RecCheckpoint(directory, every_steps=9, delta_every_steps=2)
    began = checkpoint.restore(model)
    callbacks = [checkpoint, Killed(checkpoint, kill_at)]
    summary = model.train(EPOCHS, Shuffled(batches()), callbacks, progress=False)
    found = {"began": began, "steps": summary.steps, "contents": contents(net)}
    for table in tables_of(net):
        table.close()
    return found


if __name__ == "__main__":
    ended = main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1)
    group = worker_group()
    every = group.all_gather_json(ended)
    if group.rank == 0:
        Path(f"{sys.argv[1]}.json").write_text(json.dumps(every), encoding="utf-8")
