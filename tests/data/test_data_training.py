# SPDX-License-Identifier: Apache-2.0
"""A training on rows is killed in the middle of an epoch, and goes on with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import FeatureBatches, LazyAdam, RecCheckpoint, RecModel, tables_of
from mindspore_rec.data import Sample, read
from mindspore_rec.feature import CategoryColumn, LabelColumn, Schema
from tests.checkpoint.resume_program import network

pytestmark = pytest.mark.usefixtures("graph_mode")

EPOCHS, BATCHES, BATCH = 2, 11, 16


class Steps(Callback):
    """Remembers the loss of each step, and ends a training as a kill would."""

    def __init__(self, dies_at: int | None) -> None:
        super().__init__()
        self.dies_at, self.losses = dies_at, list[float]()

    def on_train_step_end(self, run_context: Any) -> None:
        parameters = run_context.original_args()
        self.losses.append(float(parameters.net_outputs.asnumpy()))
        if parameters.cur_step_num == self.dies_at:
            raise KeyError("killed")


def life(root: Path, dies_at: int | None = None) -> tuple[list[float], list[Any]]:
    """Train from the newest checkpoint on; return losses, and digests of the tables."""
    ms.set_seed(1)
    net = network("rows")
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.05))
    schema = Schema([CategoryColumn("user"), CategoryColumn("item"), LabelColumn("click")])
    rows = read(root / "clicks.parquet", schema)
    batches = rows.batches(BATCH, shuffle=True, seed=3, buffer_rows=50)
    data = FeatureBatches(batches, schema.pipeline)
    checkpoint = RecCheckpoint(root / "run", every_steps=6, delta_every_steps=2)
    checkpoint.restore(model, data)
    steps = Steps(dies_at)
    try:
        model.train(EPOCHS, data, [checkpoint, steps], progress=False)
    except KeyError:
        assert dies_at is not None
    digests = [table.digest() for table in tables_of(net)]
    for table in tables_of(net):
        table.close()
    return steps.losses, digests


def write(root: Path) -> None:
    root.mkdir()
    numbers = np.arange((BATCHES - 1) * BATCH + 5)
    clicks = pd.DataFrame({"user": numbers % 13, "item": numbers % 7, "click": numbers % 3 == 0})
    clicks.to_parquet(root / "clicks.parquet", row_group_size=10)


def test_a_killed_training_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        write(tmp_path / name)
    losses, digests = life(tmp_path / "whole")
    assert len(losses) == EPOCHS * BATCHES
    first, _ = life(tmp_path / "killed", dies_at=7)  # saved after step 6
    second, _ = life(tmp_path / "killed", dies_at=9)  # at steps 7 to 15: the second epoch begins
    third, found = life(tmp_path / "killed")
    assert first == losses[:7] and second == losses[6:15] and third == losses[14:]
    assert found == digests


def test_a_training_on_thinned_rows_has_their_weights() -> None:
    clicks = pd.DataFrame({"user": np.arange(2000) % 13, "click": np.arange(2000) % 4 == 0})
    schema = Schema([CategoryColumn("user"), LabelColumn("click")])
    rows = read(clicks, schema, sample=Sample(negatives=0.5))
    batch = next(iter(rows.batches(100)))
    assert set(batch["weight"].to_numpy()) == {1, 2}
