# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the SSD tier runs and writes what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_ssd_tier(tmp_path):
    out = tmp_path / "ssd.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    command = [
        sys.executable, str(ROOT / "benchmarks" / "ssd_tier.py"), "--rows", "20000", "--batch",
        "1000", "--reads", "3", "--fio-seconds", "0", "--buffered", "--dir", str(tmp_path),
        "--json", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert figures["ssd"]["read_rows_per_second"] > 0
    assert figures["ssd"]["recovery_seconds"] > 0
    assert figures["fio_reads_per_second"] is None
    assert "fio is missing" in done.stdout or "--fio-seconds" in done.stdout
    assert not (tmp_path / "ssd_tier_benchmark").exists()
