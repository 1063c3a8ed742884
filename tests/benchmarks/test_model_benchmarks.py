# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the reader and of the models' steps run, and say how fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_data_pipeline(tmp_path):
    out = tmp_path / "pipeline.json"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "data_pipeline.py", "--rows", "50000",
         "--rounds", "1", "--json", out],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    readers = json.loads(out.read_text())["readers"]
    assert len(readers) == 6
    for each in readers.values():
        assert 0 < each["least"] <= each["rows_per_second"] <= each["most"]
    # it says so where a reader is slower than what is promised
    assert (done.returncode == 0) == all(
        each["rows_per_second"] >= 500_000 for each in readers.values()
    )


def test_model_step(tmp_path):
    out = tmp_path / "steps.json"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "model_step.py", "--rows", "2600", "--batch", "64",
         "--rounds", "2", "--models", "deepfm", "--compute-dtype", "float16", "--json", out],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(out.read_text())["models"].values()
    kinds = ("ours", "vanilla", "float16")
    assert all(found[f"{kind}_samples_per_s"] > 0 for kind in kinds) and found["times_float32"] > 0
    assert "| deepfm |" in done.stdout and "float16 by float32" in done.stdout
