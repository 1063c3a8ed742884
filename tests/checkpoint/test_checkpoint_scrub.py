# SPDX-License-Identifier: Apache-2.0
"""A training that scrubs its tables ends at a row that changed by itself; others go on."""

from __future__ import annotations

import re
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
from tests.cache.trained_tiers import RedisFaults, SsdFaults
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


@pytest.mark.parametrize("rows", ["memory", pytest.param("redis", marks=pytest.mark.redis), "ssd"])
def test_a_damaged_row_ends_a_training_and_a_restart_goes_on(
    tmp_path: Path, unique: Any, request: pytest.FixtureRequest, rows: str
) -> None:
    name = unique()
    tier: dict[str, Any] = {}
    url = request.getfixturevalue("redis_url") if rows == "redis" else ""
    if rows != "memory":
        ssd = SsdConfig(tmp_path / "ssd", direct=False)
        tier = {"remote": url} if url else {"ssd": ssd}

    def begin(leftover: Any) -> tuple[RecModel, Any, RecCheckpoint]:
        cache = CacheConfig(host_rows=64, leftover=leftover, **tier) if tier else None
        model = model_of(name, cache=cache)
        checks = RowChecks(scrub_seconds=0.1)
        return model, rows_of(model), checkpoint_at(tmp_path / "run", row_checks=checks)

    model, table, checkpoint = begin("refuse")
    others = np.arange(1000, 21_000 if rows == "memory" else 4000)  # which no batch has
    values = np.random.default_rng(1).standard_normal((len(others), 16), np.float32)
    table.write_rows(others, values)
    named: list[str] = []

    def damage() -> None:
        if rows == "memory":
            some = np.array([12_345])
            at = addresses_of(table._synchronised(), some, table.read_rows(some))[12_345]
            with open("/proc/self/mem", "r+b", 0) as memory:
                flip(memory, at + 5, 8)
            named.append("the rows of keys 12345 have changed")
            return
        table.flush()
        faults = RedisFaults(table, url) if url else SsdFaults(table, tmp_path)
        faults.look()
        rng = np.random.default_rng(2)
        key, undo, said = faults.make(rng)
        while key not in others:
            undo()
            key, undo, said = faults.make(rng)
        named.append(said)

    with pytest.raises(RuntimeError) as raised:
        train(model, checkpoint, 3000, After(20, damage))
    assert re.search(f"table '{name}': {named[0]}", str(raised.value))
    ended = checkpoint.step
    assert 20 <= ended < 3000
    table.close()
    again, table, checkpoint = begin("discard")
    restored = checkpoint.restore(again)
    assert restored is not None and 2 <= restored <= ended
    np.testing.assert_array_equal(table.read_rows(others), values)
    train(again, checkpoint, 60, After(1, lambda: None))
    assert checkpoint.scrub_rounds > 1
    table.close()


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
