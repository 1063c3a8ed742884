# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by the clock: a checkpoint is due one interval after the last checkpoint."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.common.run.chain import entries
from mindspore_rec.train.checkpoint import rec_checkpoint
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("graph_mode")

STEP = 10.0  # seconds by the test's clock
STEPS = 12


class Clock(Callback):
    """A clock that goes on with each step, when what was saved before is written."""

    def __init__(self, checkpoint: RecCheckpoint) -> None:
        super().__init__()
        self._checkpoint = checkpoint
        self.now = 1000.0

    def on_train_step_end(self, run_context: Any) -> None:
        wait_until(lambda: not self._checkpoint._writer.busy)
        self.now += STEP


@pytest.mark.parametrize(
    ("intervals", "fulls", "deltas"),
    [
        # The first full checkpoint is of the beginning; the last step is saved at the end.
        ({"every_steps": 100, "delta_every_seconds": 25.0}, [], [3, 6, 9, 12]),
        ({"every_steps": 100, "delta_every_seconds": 30.0}, [], [3, 6, 9, 12]),
        ({"every_steps": 100, "delta_every_seconds": 41.0}, [], [5, 10, 12]),
        ({"every_seconds": 45.0, "delta_every_seconds": 25.0}, [5, 10], [3, 8, 12]),
    ],
)
def test_intervals_begin_with_what_was_saved_last(
    intervals: dict[str, Any],
    fulls: list[int],
    deltas: list[int],
    tmp_path: Path,
    unique: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookup = HashEmbeddingLookup(2, ms.int64, name=unique())
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(2, 1))
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
    checkpoint = RecCheckpoint(tmp_path / "run", keep=9, **intervals)
    clock = Clock(checkpoint)
    own_time = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(rec_checkpoint, "time", own_time)
    batch = np.array([[1], [2]]), np.ones((2, 1), np.float32)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    model.train(1, [batch] * STEPS, [clock, checkpoint], progress=False)
    saved = [(entry.step, entry.kind) for entry in entries(tmp_path / "run")]
    assert [step for step, kind in saved if kind == "delta" and step not in fulls] == deltas
    assert set(fulls) <= {step for step, kind in saved if kind == "full"}
    lookup.embedding_table.close()
