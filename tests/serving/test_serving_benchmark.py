# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of the server run and their figures add up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT, run_program, run_python


def test_serving_load_runs(tmp_path: Path) -> None:
    run_python(
        "benchmarks/serving_load.py", "--json", str(tmp_path / "load.json"),
        "--keys", "5000", "--batch", "64", "--rate", "20", "--rounds", "1", "--seconds", "3",
    )  # fmt: skip
    figures = json.loads((tmp_path / "load.json").read_text())
    assert figures["failed_requests"] == 0 and figures["error"] is None
    assert figures["deltas_released"] == figures["deltas_applied"] == 5
    assert figures["quiet_ms"]["requests"] >= 40 and figures["deltas_ms"]["requests"] >= 40
    assert 0 < figures["quiet_ms"]["p50"] <= figures["quiet_ms"]["p99"]
    assert figures["p99_ratio"] > 0


@pytest.mark.skipif(not NIGHTLY, reason="test_serving_strangers.py asks what the strangers get")
def test_serving_soak_runs(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    done = run_program(
        "tools/serving_soak.py", "--json", str(out), "--seconds", "15",
        "--every", "1", "--keys", "2000", "--receive-seconds", "2", "--hidden", "16",
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert figures["requests"] > 200 and figures["failed_requests"] == 0, figures["failures"]
    assert len(figures["strangers"]) >= 12
    for name in ("memory_mb", "threads", "files"):  # the others are of a machine that is quiet
        assert figures["flat"][name]["flat"], done.stdout


def test_what_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from serving_soak import growth

    rng, times = np.random.default_rng(0), np.arange(0.0, 3600, 10)
    noise = rng.normal(0, 5, len(times)) + 500 * (rng.random(len(times)) < 0.05)
    flat, grows = growth(times, 200 + noise), growth(times, 200 + noise + times / 60)
    assert abs(flat["growth"]) < 3 and flat["surely"] < 1
    assert 57 < grows["growth"] < 63 and 55 < grows["surely"] < grows["growth"]
    short = growth(times[:8], 200 + noise[:8])
    assert short["surely"] < 1
