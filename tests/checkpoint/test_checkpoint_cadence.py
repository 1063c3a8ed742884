# SPDX-License-Identifier: Apache-2.0
"""When checkpoints are due and which stay, by the clock and by steps."""

from __future__ import annotations

import random
import threading
import types
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel, tables_of
from mindspore_rec.common.run.chain import entries
from mindspore_rec.train.checkpoint import rec_checkpoint
from mindspore_rec.train.checkpoint.run_directory import lock
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


# ---- checkpoints by steps: against a plain model


class PlainRun:
    """The checkpoints of a run, of which none fails and none takes time.

    Args:
        full: steps between two full checkpoints.
        delta: steps between two deltas; None for deltas before full checkpoints only.
        keep: how many full checkpoints stay.
    """

    def __init__(self, full: int, delta: int | None, keep: int) -> None:
        self.full, self.delta, self.keep = full, delta, keep
        self.there: list[tuple[int, str]] = []
        self.written: list[tuple[int, str]] = []

    @property
    def step(self) -> int | None:
        return self.there[-1][0] if self.there else None

    def _write(self, step: int, kind: str) -> None:
        self.written.append((step, kind))
        self.there = sorted([*self.there, (step, kind)])

    def train(self, steps: int, crash: int | None) -> None:
        """Go on for so many steps; after step `crash` of them, before it is saved, is an error."""
        self.written = []
        if self.step is None:
            self._write(0, "full")
        assert self.step is not None
        began = self.step
        for step in range(began + 1, began + steps + 1):
            if crash is not None and step == began + crash:
                return
            if step % self.full == 0 or (self.delta is not None and step % self.delta == 0):
                self._write(step, "delta")
            if step % self.full == 0:
                self._write(step, "full")
                fulls = [at for at, kind in self.there if kind == "full"][-self.keep :]
                self.there = [each for each in self.there if each >= (fulls[0], "full")]
        if self.step != began + steps:
            self._write(began + steps, "delta")


class Settle(Callback):
    """Waits before each step is saved until all of the steps before is written; fails at one."""

    def __init__(self, checkpoint: RecCheckpoint, crash: int | None) -> None:
        super().__init__()
        self._writer, self._crash = checkpoint._writer, crash

    def on_train_step_end(self, run_context: Any) -> None:
        wait_until(lambda: not self._writer.busy)
        merger = self._writer._merger
        assert merger is not None
        wait_until(lambda: not merger.busy)
        if run_context.original_args().cur_step_num == self._crash:
            raise KeyError("crash")


@pytest.mark.parametrize("seed", range(5))
def test_any_lives_leave_the_checkpoints_of_a_plain_model(
    seed: int, tmp_path: Path, unique: Callable[[], str]
) -> None:
    chance = random.Random(seed)
    net = nn.SequentialCell(
        HashEmbeddingLookup(2, ms.int64, name=unique()), nn.Flatten(), nn.Dense(2, 1)
    )
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    batch = np.array([[1], [2]]), np.ones((2, 1), np.float32)
    full, delta = chance.randint(1, 5), chance.choice([None, 1, 2, 3, 7])
    plain = PlainRun(full, delta, chance.randint(1, 3))
    threads = set(threading.enumerate())
    for _ in range(4):
        checkpoint = RecCheckpoint(
            tmp_path / "run",
            every_steps=full,
            delta_every_steps=delta,
            keep=plain.keep,
            data_starts_over=True,
        )
        back = plain.step is not None and chance.random() < 0.5
        if back:
            at, _ = chance.choice(plain.there)
            plain.there = [each for each in plain.there if each[0] <= at]
        assert checkpoint.restore(model, step=plain.step if back else None) == plain.step
        assert checkpoint.step == (plain.step or 0)
        steps = chance.randint(1, 9)
        crash = chance.choice([None, chance.randint(1, steps)])
        plain.train(steps, crash)
        with pytest.raises(KeyError) if crash else nullcontext():
            model.train(1, [batch] * steps, [Settle(checkpoint, crash), checkpoint], progress=False)
        assert [(save.step, save.kind) for save in checkpoint.saves] == plain.written
        saved = [(entry.step, entry.kind) for entry in entries(tmp_path / "run")]
        assert saved == plain.there and checkpoint.failures == 0
        assert set(threading.enumerate()) <= threads
        lock(tmp_path / "run").close()  # nobody else has it
    for table in tables_of(net):
        table.close()


class NoState:
    """An object whose state cannot be had."""

    def state_dict(self) -> dict[str, Any]:
        raise ArithmeticError("no state")

    def load_state_dict(self, state: Any) -> None: ...


@pytest.mark.parametrize("error", [NotADirectoryError, ArithmeticError])
def test_a_run_that_cannot_begin_leaves_its_directory_to_others(
    tmp_path: Path, unique: Callable[[], str], error: type[Exception]
) -> None:
    """Also if another process has put a file where a checkpoint should be."""
    root = tmp_path / "run"
    root.mkdir()
    if error is NotADirectoryError:
        (root / "000000000000.full").touch()
    threads = set(threading.enumerate())
    net = nn.SequentialCell(
        HashEmbeddingLookup(2, ms.int64, name=unique()), nn.Flatten(), nn.Dense(2, 1)
    )
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.1)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    batch = np.array([[1], [2]]), np.ones((2, 1), np.float32)
    checkpoint = RecCheckpoint(root, every_steps=1, states={"none": NoState()})
    with pytest.raises(error) as caught:
        model.train(1, [batch], [checkpoint], progress=False)
    lock(root).close()
    if error is NotADirectoryError:
        with pytest.raises(error) as of_restore:
            checkpoint.restore(model)
        lock(root).close()
        assert of_restore.traceback  # whose frames are alive, and yet no lock is
    assert caught.traceback
    assert set(threading.enumerate()) <= threads
    for table in tables_of(net):
        table.close()
