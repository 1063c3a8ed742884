# SPDX-License-Identifier: Apache-2.0
"""Base plus deltas is a full save, byte for byte, after random lives of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore import dtype as mstype, nn
from mindspore.train import RunContext
from mindspore.train.callback import _InternalCallbackParam

from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    RecCheckpoint,
    SketchAdmission,
    SsdConfig,
    TableConfig,
    load_checkpoint,
    save_checkpoint,
    tables_of,
)
from mindspore_rec.common.run.chain import entries, newest_chain
from mindspore_rec.common.run.load_tables import TableUpdate
from mindspore_rec.common.run.merge import merge_chain
from tests.support.native_table import native_of

DIM = 3
VOCABULARY = 400
EVICTIONS: list[dict[str, Any] | None] = [
    None,
    {"max_idle_steps": 4},
    {"max_idle_seconds": 9},
    {"max_idle_steps": 6, "trigger": "callback"},
    {"max_rows": 150},
    {"min_norm": 0.12, "trigger": "callback"},
]
PRECISIONS: list[dict[str, Any]] = [
    {},
    {"value_dtype": mstype.bfloat16, "state_dtype": mstype.bfloat16},
    {"value_dtype": mstype.float16},
]
ADMISSIONS = [None, CountAdmission(2), SketchAdmission(2, sketch_bytes=1 << 12)]


class Tables(nn.Cell):
    """Three tables and a dense parameter, without a graph.

    The first table and the table with a vocabulary are over SSDs, if asked.
    """

    def __init__(self, name: str, seed: int, ssd: Path | None = None) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        eviction = EVICTIONS[rng.integers(len(EVICTIONS))]
        self.needs_time = bool(eviction and "max_idle_seconds" in eviction)
        self.first = HashEmbeddingLookup(
            DIM,
            mstype.int64,
            name=f"{name}.first",
            admission=ADMISSIONS[rng.integers(len(ADMISSIONS))],
            eviction=None if eviction is None else Eviction(**eviction),
            cache=None if ssd is None else CacheConfig(host_rows=70, ssd=SsdConfig(ssd)),
        )
        precision = PRECISIONS[seed % len(PRECISIONS)]
        self.second = HashEmbeddingLookup(
            config=TableConfig(DIM, name=f"{name}.second", **precision)
        )
        self.third = EmbeddingLookup(
            VOCABULARY,
            DIM,
            name=f"{name}.third",
            cache=None if ssd is None else CacheConfig(host_rows=70, ssd=SsdConfig(ssd)),
        )
        self.dense = nn.Dense(2, 2)

    @property
    def natives(self) -> list[Any]:
        return [native_of(table) for table in tables_of(self)]


def close(cell: nn.Cell) -> None:
    for table in tables_of(cell):
        table.close()


class Life:
    """Steps of three tables, and what happens between them; all of it follows from the seed."""

    def __init__(self, cell: Tables, seed: int) -> None:
        self.cell, self.rng = cell, np.random.default_rng(seed)
        self.time = 100
        self.needs_time = cell.needs_time
        for native in cell.natives:
            native.bind_optimizer("adam")
            native.put(np.arange(20), np.ones((20, DIM), np.float32))  # before there is a time

    def ids(self, most: int, vocabulary: bool = False) -> np.ndarray:
        n = int(self.rng.integers(1, most))
        ids = self.rng.zipf(1.3, n).astype(np.int64) % VOCABULARY
        return ids if vocabulary else ids * 0x9E3779B97F4A7C1

    def step(self, number: int) -> None:
        rng = self.rng
        timed = number > 5 or self.needs_time
        self.time += int(rng.integers(0, 4))
        for native in self.cell.natives:
            if timed:
                native.set_event_time(self.time)
            vocabulary = native is self.cell.natives[-1]
            native.lookup(self.ids(30, vocabulary))  # does not change rows
            ids = self.ids(60, vocabulary)
            _, ticket = native.lookup_train(ids)
            native.accumulate(ticket, rng.normal(size=(len(ids), DIM)).astype(np.float32))
            native.apply(0.1, step=number)
        first = self.cell.natives[0]
        event = rng.integers(6)
        if event == 0:
            first.erase(self.ids(30))
        elif event == 1:
            keys = np.unique(self.ids(30))
            first.put(keys, rng.normal(size=(len(keys), DIM)).astype(np.float32))
        elif event == 2:
            first.evict(at_once=bool(rng.integers(2)))
        elif event == 3 and rng.random() < 0.1:
            first.clear()
        elif event == 4 and rng.random() < 0.2:
            first.bind_optimizer(str(rng.choice(["adam", "adagrad", "ftrl"])))


class Training:
    """Calls a RecCheckpoint as the training loop does."""

    def __init__(self, cell: nn.Cell, checkpoint: RecCheckpoint) -> None:
        run = self.run = _InternalCallbackParam()
        run.train_network, run.train_dataset, run.cur_step_num = cell, None, 0
        self.context = RunContext(run)
        self.checkpoint = checkpoint
        checkpoint.on_train_begin(self.context)

    def step(self) -> None:
        self.run.cur_step_num += 1
        self.checkpoint.on_train_step_end(self.context)

    def end(self) -> None:
        self.checkpoint.on_train_end(self.context)


def assert_same_files(one: Path, other: Path) -> None:
    names = [
        sorted(
            path.name
            for path in where.iterdir()
            if path.name.startswith(("table", "counters", "dense"))
        )
        for where in (one, other)
    ]
    assert names[0] == names[1]
    for name in names[0]:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("seed", range(24))
def test_base_and_deltas_are_a_full_save(tmp_path, seed):
    cell = Tables(f"deltas.{seed}", seed, tmp_path / "ssd" if seed % 2 else None)
    life = Life(cell, seed)
    rng = np.random.default_rng(seed + 1000)
    for number in range(int(rng.integers(0, 10))):
        life.step(number + 1)
    before = life.cell.natives[0].step
    root = tmp_path / "run"
    steps, full = int(rng.integers(1, 4)), int(rng.integers(4, 12))
    training = Training(
        cell, RecCheckpoint(root, every_steps=full, delta_every_steps=steps, keep=100)
    )
    for number in range(30):
        life.step(before + number + 1)
        training.step()
        if rng.random() < 0.1:
            check(cell, training, tmp_path, f"{number}")
    training.end()
    check(cell, None, tmp_path, "end")
    assert any(entry.kind == "delta" for entry in entries(root))
    # The same from the first base on, through all deltas.
    found = entries(root)
    chain = [found[0], *(entry for entry in found if entry.kind == "delta")]
    merge_chain(chain, tmp_path / "from-first")
    assert_same_files(tmp_path / "from-first", tmp_path / "saved-end")
    close(cell)


def check(cell: Tables, training: Training | None, tmp_path: Path, name: str) -> None:
    """The newest state, merged, and a network that loads it, are what a full save is now."""
    if training is not None:
        training.checkpoint._save(training.run, full=False)
        training.checkpoint._writer.finish_write()
    save_checkpoint(cell, tmp_path / f"saved-{name}")
    merge_chain(newest_chain(tmp_path / "run"), tmp_path / f"merged-{name}")
    assert_same_files(tmp_path / f"merged-{name}", tmp_path / f"saved-{name}")


@pytest.mark.parametrize("seed", range(24, 36))
def test_a_follower_that_applies_deltas_has_the_rows(tmp_path, seed):
    """What a predictor does: one delta after the other into live tables without an optimizer."""
    cell, follower = Tables(f"leader.{seed}", seed), Tables(f"leader.{seed}.copy", seed)
    life = Life(cell, seed)
    root = tmp_path / "run"
    training = Training(cell, RecCheckpoint(root, every_steps=1000, delta_every_steps=3, keep=100))
    names = [table.name for table in tables_of(cell)]
    applied: set[str] = set()
    for number in range(45):
        life.step(number + 1)
        training.step()
        if number % 9 != 8:
            continue
        training.checkpoint._save(training.run, full=False)
        training.checkpoint._writer.finish_write()
        for entry in entries(root):
            if entry.state in applied:
                continue
            applied.add(entry.state)
            for name, table in zip(names, tables_of(follower), strict=True):
                TableUpdate(entry, name).apply(table)
        for native, copy in zip(cell.natives, follower.natives, strict=True):
            rows, seen = native.export_rows(), copy.export_rows()
            order, order_seen = np.argsort(rows["keys"]), np.argsort(seen["keys"])
            for column in ("keys", "values", "counts", "last_steps", "last_times"):
                np.testing.assert_array_equal(
                    rows[column][order], seen[column][order_seen], err_msg=column
                )
    training.end()
    close(cell)
    close(follower)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_any_number_of_workers_loads_every_row_once(tmp_path, workers):
    cell = Tables("workers", 3)
    life = Life(cell, 3)
    root = tmp_path / "run"
    training = Training(cell, RecCheckpoint(root, every_steps=50, delta_every_steps=4))
    for number in range(20):
        life.step(number + 1)
        training.step()
    training.end()
    expected = [native.export_rows(with_state=True) for native in cell.natives]
    parts: list[list[dict[str, np.ndarray]]] = []
    for worker in range(workers):
        load_checkpoint(cell, root, worker=worker, workers=workers)
        parts.append([native.export_rows(with_state=True) for native in cell.natives])
    for i, rows in enumerate(expected[:-1]):  # the last has all keys everywhere
        mine = [part[i]["keys"] for part in parts]
        if workers > 1:
            assert all(0 < len(keys) < len(rows["keys"]) for keys in mine)
        together = {name: np.concatenate([part[i][name] for part in parts]) for name in rows}
        order, order_together = np.argsort(rows["keys"]), np.argsort(together["keys"])
        for name in rows:
            np.testing.assert_array_equal(rows[name][order], together[name][order_together])
    with pytest.raises(ValueError, match="worker"):
        load_checkpoint(cell, root, worker=2, workers=2)
    close(cell)
