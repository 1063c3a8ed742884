# SPDX-License-Identifier: Apache-2.0
"""The example trains with tiers and finds the bits of the run in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "multi_level_cache" / "train.py"


def test_it_runs(tmp_path):
    out = tmp_path / "figures.json"
    done = subprocess.run(
        [
            sys.executable, str(SCRIPT), "--steps", "30", "--batch", "256", "--cardinality",
            "20000", "--host-share", "0.4", "--ssd-path", str(tmp_path / "ssd"),
            "--json", str(out),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["same_predictions"]
    assert "the same predictions, bit for bit: True" in done.stdout
    stats = figures["tiers"]["stats"]
    assert figures["tiers"]["rows"] == figures["memory"]["rows"] > stats["host_capacity_rows"]
    assert stats["host_rows"] <= stats["host_capacity_rows"]
    assert stats["prefetched_rows"] > 0
    assert not list((tmp_path / "ssd").iterdir()), "the temporary directory is gone"
