# SPDX-License-Identifier: Apache-2.0
"""Peers: workers of other interpreters take steps on command, say why they ended, or are absent."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tests.support.processes import ROOT

SETTINGS = {
    "fields": 2, "columns": 3, "hidden": [4], "dim": 5, "rows": 6, "threads": 1,
    "precision": "float32",
}  # fmt: skip
ARRAYS = {
    "ranks": np.arange(8).reshape(2, 2, 2) % 6,
    "keys": np.arange(8).reshape(2, 2, 2) % 6,
    "every": np.arange(6),
    "dense": np.ones((2, 3), np.float32),
    "label": np.ones((2, 1), np.float32),
}

WORKER = """
import sys
sys.path.insert(0, {peers!r})
from serve import serve

def make(work):
    print("a framework prints what it likes")
    assert work.hidden == [4] and work.dense.shape == (2, 3)

    def step(k):
        if k == 7:
            raise KeyError("batch seven")
        return float("nan") if k == 8 else float(work.ranks[k].sum())

    return {{"version": "1.5"}}, step

serve(make)
"""


@pytest.fixture
def peer_process(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import peer_process

    worker = tmp_path / "worker.py"
    worker.write_text(WORKER.format(peers=str(ROOT / "benchmarks" / "peers")))
    monkeypatch.setitem(peer_process.WORKERS, "toy", str(worker))
    return peer_process


def test_a_worker_takes_steps(peer_process):
    peer = peer_process.Peer("toy", sys.executable, SETTINGS, ARRAYS)
    try:
        assert peer.about == {"version": "1.5"}
        assert all(0 <= peer.step(k) < 60 for k in (0, 1, 0))
    finally:
        peer.close()


@pytest.mark.parametrize(("k", "word"), [(7, "batch seven"), (8, "the loss is nan")])
def test_the_last_words_of_a_worker_are_told(peer_process, k, word):
    peer = peer_process.Peer("toy", sys.executable, SETTINGS, ARRAYS)
    try:
        with pytest.raises(RuntimeError, match=word):
            peer.step(k)
        with pytest.raises(RuntimeError, match="ended with code"):
            peer.step(0)
    finally:
        peer.close()


def test_a_worker_that_does_not_start_is_told(peer_process):
    with pytest.raises(RuntimeError, match="unexpected keyword argument 'more'"):
        peer_process.Peer("toy", sys.executable, {**SETTINGS, "more": 1}, ARRAYS)


def test_what_is_not_installed_is_said(peer_process, monkeypatch, tmp_path):
    monkeypatch.setitem(peer_process.MODULES, "toy", ("json", "no_such_module"))
    assert "does not have no_such_module" in peer_process.installed("toy", sys.executable)
    monkeypatch.setitem(peer_process.MODULES, "toy", ("json",))
    assert peer_process.installed("toy", sys.executable) == ""
    assert "does not run" in peer_process.installed("toy", str(tmp_path / "python"))


def test_peers_that_are_missing_are_left_out(tmp_path):
    import subprocess

    out = tmp_path / "step.json"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "wide_deep_step.py", "--batch", "20", "24",
         "--rows", "2000", "--rounds", "2", "--shape", "criteo_26", "--peers", "torch,tfra",
         "--torch-python", tmp_path / "none", "--tfra-python", tmp_path / "none", "--json", out],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch is left out" in done.stdout and "tfra is left out" in done.stdout
    batches = json.loads(out.read_text())["shapes"]["criteo_26"]
    assert set(batches) == {"20", "24"}
    for found in (each["float32"] for each in batches.values()):
        assert "vanilla_samples_per_s" not in found
        whole = found["runs_ms"]["ours"]
        assert sum(found["parts_ms"].values()) == pytest.approx(whole, abs=0.01)
        assert found["by_bare"] > 0 and len(found["bare_products"]) == 9
        assert min(found["runs_ms"].values()) > 0
        assert set(found["table_operators_ms"]) == {"lookup", "accumulate", "step"}
