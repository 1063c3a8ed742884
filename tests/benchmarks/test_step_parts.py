# SPDX-License-Identifier: Apache-2.0
"""The parts of a step are what their names say, and add up to the whole."""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import EmbeddingBag, HashEmbeddingLookup, TableConfig
from mindspore_rec.optim import LazyAdam

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_common  # noqa: E402
import step_parts as parts  # noqa: E402  (beside the benchmarks, which run as scripts)
import step_report  # noqa: E402

sys.path.remove(str(BENCHMARKS))

seconds = st.lists(st.floats(1e-4, 10), min_size=1, max_size=5).map(np.array)
RUNS = ("ours", "forward", "gradients", "dense", "products", "tables", "mindspore")


@given(times=st.fixed_dictionaries({name: seconds for name in RUNS}), inside=st.floats(0, 1))
def test_parts_add_up_to_the_whole_step(times, inside):
    length = min(map(len, times.values()))
    times = {name: spent[:length] for name, spent in times.items()}
    found = step_report.figures(times, {"lookup": inside}, 100)
    whole = 1e3 * np.median(times["ours"])
    assert list(found["parts_ms"]) == list(parts.PARTS)
    assert sum(found["parts_ms"].values()) == pytest.approx(whole, abs=0.01)
    bare = np.median(times["ours"] / (times["products"] + times["tables"]))
    assert found["by_bare"] == pytest.approx(bare, abs=1e-3)
    assert found["times_vanilla"] == pytest.approx(
        np.median(times["mindspore"] / times["ours"]), abs=1e-3
    )
    assert found["ours_samples_per_s"] == pytest.approx(1e5 / whole, abs=0.1)


def test_without_bare_products_there_are_no_parts():
    times = {name: np.ones(2) for name in RUNS if name != "products"}
    found = step_report.figures(times, {}, 100)
    assert "parts_ms" not in found and "by_bare" not in found


class Net(nn.Cell):
    """Given rows, a layer, a loss."""

    def __init__(self, rows):
        super().__init__()
        self.lookup = parts.GivenRows("rows", rows)
        self.layer = nn.Dense(3, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids, label):
        return self.loss(self.layer(self.lookup(ids)), label)


def test_the_dense_step_updates_the_network_and_not_the_rows():
    ms.set_context(mode=ms.GRAPH_MODE)
    rows = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    nets = []

    def make():
        nets.append(Net(rows))
        return nets[-1]

    batch = Tensor(np.zeros((4, 1), np.int64)), Tensor(np.ones((4, 1), np.float32))
    runs = parts.dense_runs(make, lambda p: LazyAdam(list(p), 0.1), batch)
    assert set(runs) == {"forward", "gradients", "dense"} and len(nets) == 3
    before = [net.layer.weight.asnumpy().copy() for net in nets]
    losses = {name: [float(run(0)) for _ in range(3)] for name, run in runs.items()}
    assert len(set(losses["forward"])) == 1 and len(set(losses["gradients"])) == 1
    assert losses["dense"][2] < losses["dense"][0]
    same = [np.array_equal(n.layer.weight.asnumpy(), b) for n, b in zip(nets, before, strict=True)]
    assert same == [True, True, False]
    assert all(np.array_equal(net.lookup.rows.asnumpy(), rows) for net in nets)
    assert all(net.training for net in nets)


def test_the_table_step_updates_the_rows_of_its_ids_by_the_optimizer():
    ms.set_context(mode=ms.GRAPH_MODE)
    deep = HashEmbeddingLookup(4, ms.int64, "zeros", name="step_parts.deep")
    wide = EmbeddingBag(TableConfig(1, name="step_parts.wide", initializer="zeros"), "sum")
    tables = [deep.embedding_table, wide.embedding_table]
    for table in tables:
        table.insert_rows(np.arange(10))
    optimizer = LazyAdam([*deep.trainable_params(), *wide.trainable_params()], 0.1)
    ids = [Tensor(np.array([[1, 2], [3, 4]])), Tensor(np.array([[5, 5], [5, 5]]))]
    run = parts.table_run((deep, wide), optimizer, ids)
    times = parts.TableTimes(tables)
    for i in range(2):
        run(i)
    assert set(times.seconds_per_step(2)) == {"lookup", "accumulate", "step"}
    times.start()
    assert times.seconds_per_step(1) == {}
    for table in tables:
        values = dict(zip(*table.export_data()[:2], strict=True))
        for key, row in values.items():
            # the first step of Adam moves every float by nearly the learning rate
            moved = np.abs(row)
            assert np.all((moved > 0.05) & (moved < 0.11) if 1 <= key <= 5 else moved == 0)
        table.close()


def test_runs_alternate(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(bench_common.time, "sleep", pauses.append)
    seen = []

    def run(name):
        def step(i):
            seen.append((name, i))
            return float(i)

        return step

    runs = {"a": run("a"), "b": run("b")}
    times = bench_common.alternate(runs, 2, 1, "test", pause=parts.PAUSE)
    assert seen == [(name, i) for i in range(3) for name in "ab"]
    assert {name: spent.tolist() for name, spent in times.items()} == {"a": [1, 2], "b": [1, 2]}
    assert pauses == [parts.PAUSE] * 6


def test_runs_can_be_timed_as_a_whole(monkeypatch):
    clock = iter([0.0, 2.0, 2.0, 5.0])
    monkeypatch.setattr(bench_common.time, "perf_counter", lambda: next(clock))
    seen: list[int] = []
    times = bench_common.alternate(bench_common.timed({"a": seen.append}), 2, 0, "test")
    assert seen == [0, 1] and times["a"].tolist() == [2.0, 3.0]
