# SPDX-License-Identifier: Apache-2.0
"""The benchmark of admission and eviction does what it says it measures."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from tests.support.processes import ROOT, run_program


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program(ROOT / "benchmarks" / "dynamic_features.py", *arguments)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    out = tmp_path_factory.mktemp("dynamic") / "figures.json"
    done = run(
        "--batch", "128", "--fields", "4", "--rows", "20000", "--rounds", "20", "--new", "0.1",
        "--policies", "none", "count", "probability", "idle_steps", "lru", "count_once",
        "--sweep-rows", "30000", "--sweeps", "evict_by_callback", "recorded", "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


def test_the_policies_did_their_work(figures):
    new = int(0.1 * 128 * 4) // 2  # never-seen keys in a batch, and those of the batch before
    policies = figures["policies"]
    assert policies["none"]["inserted_a_step"] == new
    # As many are admitted as come a second time, as many counted as come the first time.
    assert policies["count"]["inserted_a_step"] == pytest.approx(new, rel=0.1)
    assert policies["count"]["rejected_a_step"] == pytest.approx(new, rel=0.1)
    # Of the first-time and then of the remaining second-time keys one half.
    assert policies["probability"]["inserted_a_step"] == pytest.approx(0.75 * new, rel=0.25)
    assert policies["count_once"]["inserted_a_step"] == 0
    assert policies["count_once"]["rejected_a_step"] == 2 * new + 1
    assert policies["lru"]["evicted_a_step"] == pytest.approx(new, rel=0.1)
    assert policies["idle_steps"]["evicted_a_step"] > new / 2
    for found in policies.values():
        assert 0 < found["table_ms"] < found["step_ms"]
        assert found["step_ratio"] == pytest.approx(found["step_ms"] / found["step_without_ms"])


def test_the_sweep_takes_nearly_all_rows(figures):
    for found in figures["sweeps"].values():
        assert found["evicted"] > 0.5 * 30_000
        assert found["rows_before"] > 30_000
        assert found["rows_after"] < found["rows_before"] - 0.5 * 30_000
        assert found["longest_ms"] >= found["median_sweeping_ms"] > 0
        assert found["stall_ratio"] == pytest.approx(found["longest_ms"] / found["median_ms"])


def test_help_and_unknown_names():
    assert "--json" in run("--help").stdout
    done = run("--policies", "lru", "lifo")
    assert done.returncode != 0
    assert "must be among" in done.stderr and "lifo" in done.stderr


def test_streams_have_the_new_keys_they_promise(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_common
    from dynamic_table import Stream  # type: ignore[import-not-found]

    known = set(bench_common.spread_keys(np.arange(1000)).tolist())
    for kind, twice in (("returning", True), ("once", False)):
        stream = Stream((64, 5), 1000, 1.2, 0.1, kind, 1000, seed=3)
        seen: dict[int, list[int]] = {}
        for i in range(6):
            batch = stream.batch().reshape(-1).tolist()
            for key in set(batch) - known:
                assert batch.count(key) == 1
                seen.setdefault(key, []).append(i)
        assert len(seen) == 6 * stream.fresh
        for steps in seen.values():
            first = steps[0]
            assert steps == ([first, first + 1] if twice and first < 5 else [first])
