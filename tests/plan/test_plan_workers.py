# SPDX-License-Identifier: Apache-2.0
"""The plan of workers against sets of keys counted one by one, and its command."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import _native
from mindspore_rec.plan import KeyLog, Machine, PlannedTable, plan_workers
from mindspore_rec.plan.__main__ import main
from mindspore_rec.plan.placement import TableCost, propose
from mindspore_rec.plan.worker_loads import WorkerLoads, count_loads


def write_log(path, keys):
    path.write_text("item\n" + "".join(f"{key}\n" for key in keys))
    return KeyLog([path], ["item"])


def owner(key, workers):
    return int(_native.owners(np.array([key], np.int64), workers)[0])


@given(st.lists(st.integers(-5, 40), min_size=1, max_size=60), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=150)
def test_loads_equal_sets_of_keys(tmp_path_factory, keys, workers, batch_size):
    log = write_log(tmp_path_factory.mktemp("log") / "log.csv", keys)
    (loads,), samples = count_loads(log, [workers], batch_size)
    assert samples == len(keys)
    assert loads.rows.tolist() == [
        sum(owner(key, workers) == w for key in set(keys)) for w in range(workers)
    ]
    batches = [keys[i : i + batch_size] for i in range(0, len(keys), batch_size)]
    whole = len(batches) // workers
    assert loads.expected == (whole == 0)
    for step in range(whole):
        mine = batches[step * workers : (step + 1) * workers]
        assert loads.sent[step].tolist() == [len(set(batch)) for batch in mine]
        for w in range(workers):
            owned = [[key for key in batch if owner(key, workers) == w] for batch in mine]
            assert loads.lookups[step, w] == sum(map(len, owned))
            assert loads.received[step, w] == sum(len(set(batch)) for batch in owned)
            assert loads.updated[step, w] == len(set().union(*map(set, owned)))


def test_expected_loads_are_those_of_batches_drawn_from_the_log(tmp_path):
    rng = np.random.default_rng(3)
    keys = rng.zipf(1.3, 800) % 50
    (loads,), _ = count_loads(write_log(tmp_path / "log.csv", keys), [100], batch_size=20)
    assert loads.expected and loads.steps == 1
    batches = keys.reshape(40, 20)
    inside = Counter(key for batch in batches for key in set(batch.tolist()))
    received = np.zeros(100)
    updated = np.zeros(100)
    for key, times in inside.items():
        received[owner(key, 100)] += 100 * times / 40
        updated[owner(key, 100)] += 1 - (1 - times / 40) ** 100
    np.testing.assert_allclose(loads.received[0], received)
    np.testing.assert_allclose(loads.updated[0], updated)
    assert loads.lookups.sum() == pytest.approx(100 * 20)


def test_bytes_and_seconds_are_the_arithmetic_of_the_docs(tmp_path):
    keys = [1, 2, 3, 4, 1, 2, 5, 6]  # of two workers with batches of 4
    tables = {"items": PlannedTable(write_log(tmp_path / "log.csv", keys), 16, "SGD")}
    machine = Machine(link_bytes=1e6, memory_bytes=1e6, latency=1e-3, message=1e-4)
    outcome = plan_workers(tables, [2], 4, machine, 1000, 0.5).outcomes[0]
    table = outcome.tables["items"]
    received = np.bincount([owner(key, 2) for key in keys], minlength=2)
    updated = np.bincount([owner(key, 2) for key in set(keys)], minlength=2)
    out = 4 * (12 + 64) + received * 64
    into = received * (12 + 64) + 4 * 64
    assert (outcome.steps, table.sent_keys) == (1, 4.0)
    assert table.sent_bytes == pytest.approx(out.mean())
    touched = received * 92 + updated * 2 * 92
    assert outcome.table_seconds == pytest.approx(touched.max() / 1e6)
    assert outcome.row_bytes == updated.max() * (92 + 8)
    exchange = np.maximum(out, into).max() / 2 / 1e6 + 9 * (1e-4 + 1e-3)
    assert outcome.exchange_seconds == pytest.approx(exchange)
    assert outcome.average_seconds == pytest.approx(2 * 1000 / 2 / 1e6 + 3 * (1e-4 + 1e-3))
    parts = (outcome.table_seconds, outcome.exchange_seconds, outcome.average_seconds)
    assert outcome.step_seconds == pytest.approx(0.5 + sum(parts))
    assert outcome.samples_per_second == pytest.approx(8 / outcome.step_seconds)


def test_workers_of_one_host_need_no_link(tmp_path):
    tables = {"items": PlannedTable(write_log(tmp_path / "log.csv", range(64)))}
    machine = Machine(workers_per_host=4, message=0.0)
    outcome = plan_workers(tables, [4], 4, machine, dense_bytes=1 << 20).outcomes[0]
    assert outcome.exchange_seconds == outcome.average_seconds == 0.0


def test_a_hot_small_table_leaves_the_busiest_worker():
    busy = np.array([[90000, 10]])
    big = WorkerLoads(2, np.array([9000, 9000]), busy, busy, busy, busy)
    hot = np.array([[50, 0]])
    small = WorkerLoads(2, np.array([50, 0]), hot, hot, hot, np.array([[25, 25]]))
    costs = {"big": TableCost(big, 16, 220), "small": TableCost(small, 16, 220)}
    placements = propose(costs, Machine())
    assert placements["big"] == ("sharded", None)
    assert placements["small"] == ("owner", 1)


def test_the_command_writes_figures_and_placements(tmp_path, capsys):
    rng = np.random.default_rng(1)
    log = tmp_path / "log.csv"
    rows = [
        f"{a},{b}\n" for a, b in zip(rng.zipf(1.2, 4000), rng.integers(0, 3, 4000), strict=True)
    ]
    log.write_text("item,gender\n" + "".join(rows))
    figures, placements = tmp_path / "f.json", tmp_path / "new" / "p.json"
    command = [str(log), "--workers", "1,2,400", "--batch-size", "100", "--table", "items=item"]
    command += ["--table", "gender:4=gender", "--compute-ms", "5", "--dense-bytes", "1000"]
    assert main([*command, "--json", str(figures), "--placements", str(placements)]) == 0
    text = capsys.readouterr().out
    assert "* 400" in text and "shorter than one step" in text
    written = json.loads(figures.read_text())
    assert [each["steps"] for each in written["outcomes"]] == [40, 20, 0]
    assert written["outcomes"][0]["exchange_seconds"] == 0.0
    proposed = json.loads(placements.read_text())
    assert set(proposed) == {"1", "2", "400"} and set(proposed["2"]) == {"items", "gender"}
    assert proposed["2"]["items"] == {"placement": "sharded"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keys", "item", "--link-gbit", "1"], "--link-gbit needs --workers"),
        (["--workers", "2", "--keys", "item", "--table", "a=item"], "exclude each other"),
        (["--workers", "2", "--keys", "item", "--capacity", "5"], "--capacity must be left out"),
        (["--workers", "2", "--table", "a=item", "--table", "a=item"], "each table once"),
        (["--workers", "2", "--keys", "item", "--memory-gb", "0"], "memory_bytes must be > 0"),
        (["--workers", "2", "--keys", "nothing"], "nothing"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path, capsys, options, message):
    log = tmp_path / "log.csv"
    log.write_text("item\n1\n2\n")
    assert main([str(log), *options]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--workers", "2"], ["--keys", "a", "--workers", "x"]])
def test_what_cannot_be_parsed_shows_the_usage(tmp_path, options):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "log.csv"), *options])
