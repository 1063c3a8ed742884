# SPDX-License-Identifier: Apache-2.0
"""A training over lists and data sets goes on in the middle of a pass, bit for bit, or is refused."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from datasets.common.reader import batches as packed_batches
from mindspore_rec import CacheConfig, LazyAdam, RecCheckpoint, RecModel, tables_of
from tests.checkpoint.resume_program import BATCHES, EPOCHS, ROWS, Shuffled, batches, contents
from tests.checkpoint.resume_program import main as program
from tests.checkpoint.resume_program import network
from tests.run_python import ROOT

pytestmark = pytest.mark.usefixtures("graph_mode")

ALL = EPOCHS * BATCHES


class Seen(Callback):
    """First ids of the trained batches; dies before the checkpoint of a step, as a kill would."""

    def __init__(self, checkpoint: RecCheckpoint, dies_at: int | None) -> None:
        super().__init__()
        self.seen: dict[int, int] = {}
        self.epochs: list[int] = []
        self._checkpoint, self._dies_at = checkpoint, dies_at

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        step = self._checkpoint.step + 1
        if step == self._dies_at:
            raise KeyError("killed")
        self.seen[step] = int(run.train_dataset_element[0].asnumpy()[0, 0])

    def on_train_epoch_end(self, run_context: Any) -> None:
        self.epochs.append(run_context.original_args().cur_epoch_num)


class Life:
    """A process of training, as far as it can be had within one."""

    def __init__(self, root: Path, name: str, dies_at: int | None = None, **more: Any) -> None:
        ms.set_seed(1)
        random.seed(1)
        self.net = network(name, **more.pop("table", {}))
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.05)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)
        cadence = {"every_steps": 7, "delta_every_steps": 2}
        self.checkpoint = RecCheckpoint(root, **{**cadence, **more})
        self.callback = Seen(self.checkpoint, dies_at)

    def train(self, data: Any, epochs: int = EPOCHS, **more: Any) -> Any:
        callbacks = [self.callback, self.checkpoint]
        return self.model.train(epochs, data, callbacks, progress=False, **more)

    def close(self) -> dict[str, Any]:
        found = contents(self.net)
        for table in tables_of(self.net):
            table.close()
        return found


@pytest.fixture(autouse=True)
def seeds() -> Iterator[None]:
    """Puts the seed of data sets back, which `ms.set_seed` changes too."""
    before = ds.config.get_seed()
    yield
    ds.config.set_seed(before)


def columns() -> dict[str, np.ndarray]:
    ids, label = (np.concatenate(each) for each in zip(*batches(), strict=True))
    return {"ids": ids, "label": label}


def dataset(shuffle: bool) -> ds.Dataset:
    return ds.NumpySlicesDataset(columns(), shuffle=shuffle).batch(ROWS)


class Counting:
    """Batches in the order of the pass, which it counts."""

    def __init__(self) -> None:
        self.passes = 0

    def skip_passes(self, passes: int) -> None:
        self.passes += passes

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        order = np.random.default_rng(self.passes).permutation(BATCHES)
        data = batches()
        return iter([data[i] for i in order])


KINDS: dict[str, Callable[[], Any]] = {
    "list": batches,
    "shuffled by NumPy": lambda: Shuffled(batches()),
    "shuffled by the pass": Counting,
    "reader": lambda: packed_batches(columns(), ROWS, shuffle=True, seed=3),
    "Dataset": lambda: dataset(shuffle=False),
    "shuffled Dataset": lambda: dataset(shuffle=True),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Trains without a stop, once per kind of data: order of batches, epochs, contents."""
    found: dict[Any, Any] = {}

    def get(kind: str, name: str, **more: Any) -> Any:
        key = kind, *more.items()
        if key not in found:
            life = Life(tmp_path_factory.mktemp("whole") / "run", name)
            life.train(KINDS[kind](), **more)
            found[key] = life.callback.seen, life.callback.epochs, life.close()
        return found[key]

    return get


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sink_size", [-1, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_random_stops_change_nothing(
    tmp_path: Path, undisturbed: Callable[..., Any], kind: str, sink_size: int, seed: int
) -> None:
    rng = random.Random(f"{kind} {sink_size} {seed}")
    name = f"resume.{sorted(KINDS).index(kind)}"
    seen, epochs, whole = undisturbed(kind, name, sink_size=sink_size)
    trained: dict[int, int] = {}
    ended: list[int] = []
    last, lives, found = 0, 0, {}
    while last < len(seen):
        lives += 1
        stop = last + rng.randint(2, len(seen) // 3) if lives < 5 else None
        most = rng.randint(2, len(seen) // 3) if lives < 5 and rng.random() < 0.4 else None
        life = Life(tmp_path / "run", name, stop, delta_every_steps=rng.randint(1, 3))
        last = life.checkpoint.restore(life.model) or 0
        trained = {step: first for step, first in trained.items() if step <= last}
        try:
            life.train(KINDS[kind](), max_steps=most, sink_size=sink_size)
        except KeyError:
            pass
        else:
            last = life.checkpoint.step
        trained |= life.callback.seen
        ended += life.callback.epochs
        found = life.close()
    assert lives > 1
    assert trained == seen
    assert found == whole
    assert sorted(set(ended)) == epochs
