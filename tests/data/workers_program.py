# SPDX-License-Identifier: Apache-2.0
"""Trains on rows with any number of workers, from the newest checkpoint on.

    workers_program.py DIRECTORY STEP

The training ends without a checkpoint after the step with that number, as a kill would end it. Each
worker prints a line of JSON: the losses of its steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import FeatureBatches, HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, LabelColumn, Schema
from tests.support.networks import LogitOf


class Steps(Callback):
    """Remembers the loss of each step, and ends the training after one of them."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.last, self.losses = last, list[float]()

    def on_train_step_end(self, run_context: Any) -> None:
        parameters = run_context.original_args()
        self.losses.append(float(parameters.net_outputs.asnumpy()))
        if parameters.cur_step_num == self.last:
            raise KeyError("killed")


def main(root: Path, last: int) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    net = LogitOf(HashEmbeddingLookup(4, ms.int64, name="rows"), 8)
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.05))
    schema = Schema([CategoryColumn("user"), CategoryColumn("item"), LabelColumn("click")])
    rows = read(root / "clicks.parquet", schema)
    batches = rows.batches(48, shuffle=True, seed=3, buffer_rows=50)
    data = FeatureBatches(batches, schema.pipeline)
    checkpoint = RecCheckpoint(root / "run", every_steps=6, delta_every_steps=2)
    checkpoint.restore(model, data)
    steps = Steps(last)
    try:
        model.train(2, data, [checkpoint, steps], progress=False)
    except KeyError:
        pass
    print(json.dumps(steps.losses), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
