# SPDX-License-Identifier: Apache-2.0
"""Trains until it is interrupted, then says what it finds; run by test_train_interrupt.py."""

from __future__ import annotations

import sys
import time

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, RecModel
from mindspore_rec.optim import LazyAdam


class Ends(Callback):
    """Says when training begins in earnest, and its end."""

    def __init__(self, slow_end: bool) -> None:
        super().__init__()
        self.slow_end = slow_end

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 20:
            print("running", flush=True)

    def on_train_end(self, run_context):
        print("on_train_end", flush=True)
        if self.slow_end:
            time.sleep(60)


def batches(silent_after: int):
    rng = np.random.default_rng(0)
    number = 0
    while True:
        if number == silent_after:
            time.sleep(60)
        number += 1
        yield rng.integers(0, 100_000, (512, 8)), np.ones((512, 1), np.float32)


def main(kind: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    embedding = HashEmbeddingLookup(4, ms.int64, name="t")
    net = nn.SequentialCell(embedding, nn.Flatten(), nn.Dense(32, 1))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    source = batches(20 if kind == "silent" else -1)
    if kind == "dataset":
        source = ds.GeneratorDataset(lambda: batches(-1), ["ids", "label"], shuffle=False)
    summary = model.online_train(source, Ends(kind == "slow_end"), progress=False)
    table = embedding.embedding_table
    rows = len(table.export_rows()["keys"])
    again = model.train(1, [next(batches(-1))], progress=False)
    print(
        f"interrupted={summary.interrupted} complete={summary.steps + 1 == table.step} "
        f"whole={rows == table.stats()['rows'] > 0} again={again.steps}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1])
