# SPDX-License-Identifier: Apache-2.0
"""A training that scrubs its tables ends at a row that changed by itself; others go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    CacheConfig,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    SsdConfig,
    tables_of,
)
from mindspore_rec.checkpoint import RowChecks
from mindspore_rec.common.digests.scrub import Scrub
from mindspore_rec.train.checkpoint.scrub import DigestedRows
from tests.parameter.test_digest import addresses_of, flip

pytestmark = pytest.mark.usefixtures("graph_mode")

BATCH = np.array([[1, 2], [3, 4]]), np.array([[0], [1]], np.float32)


class After(Callback):
    """Calls a function at a step's end."""

    def __init__(self, step: int, call: Any) -> None:
        super().__init__()
        self.step, self.call = step, call

    def on_train_step_end(self, run_context: Any) -> None:
        time.sleep(0.01)
        if run_context.original_args().cur_step_num == self.step:
            self.call()


def model_of(name: str, **table: Any) -> RecModel:
    net = nn.SequentialCell(
        HashEmbeddingLookup(16, ms.int64, name=name, **table), nn.Flatten(), nn.Dense(32, 1)
    )
    return RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.1))


def rows_of(model: RecModel) -> Any:
    return next(iter(tables_of(model.train_network)))


def train(model: RecModel, checkpoint: RecCheckpoint, steps: int, *calls: Callback) -> None:
    checkpoint_last = [*calls, checkpoint]
    model.online_train([BATCH] * steps, checkpoint_last, progress=False)


def checkpoint_at(path: Path, **more: Any) -> RecCheckpoint:
    return RecCheckpoint(path, every_steps=1000, delta_every_steps=2, data_starts_over=True, **more)


def test_a_damaged_row_ends_a_training_and_a_restart_goes_on(tmp_path: Path, unique: Any) -> None:
    name = unique()
    model = model_of(name)
    table = rows_of(model)
    others = np.arange(1000, 21_000)  # which no batch has
    table.write_rows(others, np.random.default_rng(1).standard_normal((20_000, 16), np.float32))
    right = table.read_rows(others)
    native = table._synchronised()

    def damage() -> None:
        key = np.array([12_345])
        at = addresses_of(native, key, table.read_rows(key))[12_345]
        with open("/proc/self/mem", "r+b", 0) as memory:
            flip(memory, at + 5, 8)

    checkpoint = checkpoint_at(tmp_path / "run", row_checks=RowChecks(scrub_seconds=0.1))
    with pytest.raises(RuntimeError, match=f"table '{name}': the rows of keys 12345 have changed"):
        train(model, checkpoint, 3000, After(20, damage))
    assert 20 <= checkpoint.step < 3000
    table.close()
    again = model_of(name)
    checkpoint = checkpoint_at(tmp_path / "run", row_checks=RowChecks(scrub_seconds=0.1))
    restored = checkpoint.restore(again)
    assert restored is not None and 2 <= restored <= checkpoint.step
    np.testing.assert_array_equal(rows_of(again).read_rows(others), right)
    train(again, checkpoint, 40, After(1, lambda: None))
    assert checkpoint.scrub_rounds > 1


@pytest.mark.parametrize("rows", ["host", "ssd", "aged"])
def test_nothing_is_found_where_rows_only_are_trained(
    tmp_path: Path, unique: Any, rows: str
) -> None:
    settings: dict[str, Any] = {}
    if rows == "ssd":
        settings = {"cache": CacheConfig(host_rows=64, ssd=SsdConfig(tmp_path / "ssd"))}
    elif rows == "aged":
        settings = {"eviction": Eviction(max_idle_steps=3)}
    model = model_of(unique(), **settings)
    rng = np.random.default_rng(2)
    batches = [(rng.integers(0, 300, (16, 2)), np.ones((16, 1), np.float32)) for _ in range(120)]
    checkpoint = checkpoint_at(tmp_path / "run", row_checks=RowChecks(scrub_seconds=0.02))
    model.online_train(batches, [After(-1, None), checkpoint], progress=False)
    assert checkpoint.step == 120
    assert checkpoint.scrub_rounds > 5


def test_each_row_is_looked_at_once_a_round(unique: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(unique())
    table = rows_of(model)
    table.write_rows(np.arange(100_000), np.ones((100_000, 16), np.float32))
    table.marks.hold("test", table.marks.new())
    table.marks.keep_digest()
    seen: list[tuple[int, int]] = []
    now = [0.0]
    monkeypatch.setattr("mindspore_rec.common.digests.scrub.time.monotonic", lambda: now[0])

    def none_are(_: object, part: int, parts: int) -> np.ndarray:
        seen.append((part, parts))
        return np.empty(0, np.int64)

    monkeypatch.setattr(type(table), "damaged_rows", none_are)
    scrub = Scrub(DigestedRows([table]), 100.0)
    scrub.step()
    assert seen == []
    now[0] = 50.0
    scrub.step()
    parts = 100_000 // 8192
    assert seen == [(part, parts) for part in range(parts // 2)]
    now[0] = 99.9
    scrub.step()
    assert scrub.rounds == 0
    now[0] = 1000.0  # a step that took long
    scrub.step()
    assert seen == [(part, parts) for part in range(parts)] and scrub.rounds == 1
    scrub.step()
    assert len(seen) == parts
    table.marks.release("test")


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for seconds in (-1, float("nan"), 1e10):
        with pytest.raises(ValueError, match="scrub_seconds"):
            RowChecks(scrub_seconds=seconds)
    wrong: Any = "1"
    with pytest.raises(TypeError, match="scrub_seconds"):
        RowChecks(scrub_seconds=wrong)
    with pytest.raises(TypeError, match="keep_digests must be a bool, got '1'"):
        RowChecks(keep_digests=wrong)
    with pytest.raises(ValueError, match="scrub_seconds must be 0 with keep_digests=False"):
        RowChecks(scrub_seconds=1, keep_digests=False)
    with pytest.raises(TypeError, match="row_checks must be a RowChecks, got str"):
        checkpoint_at(tmp_path, row_checks=wrong)


def test_a_round_takes_a_quarter_of_the_time_at_most(
    unique: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HashEmbeddingLookup(1, ms.int64, name=unique()).embedding_table
    table.marks.hold("test", table.marks.new())
    table.write_rows(np.arange(100_000), np.ones((100_000, 1), np.float32))
    table.marks.keep_digest()
    now, looked = 0.0, []

    def look(_: Any, part: int, parts: int) -> np.ndarray:
        nonlocal now
        now += 1.0
        looked.append(part)
        return np.zeros(0, np.int64)

    monkeypatch.setattr("mindspore_rec.common.digests.scrub.time.monotonic", lambda: now)
    monkeypatch.setattr(type(table), "damaged_rows", look)
    scrub = Scrub(DigestedRows([table]), 1e-320)
    for _ in range(200):
        now += 9.0  # a step
        scrub.step()
    assert scrub.rounds > 3
    assert len(looked) <= 200 * 4  # of 9 to 13 seconds, a quarter, and the part that was begun
    table.close()
