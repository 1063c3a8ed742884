# SPDX-License-Identifier: Apache-2.0
"""A short soak of all tiers: every invariant at the end, memory within bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nightly import NIGHTLY
from tests.support.redis_server import need_server

ROOT = Path(__file__).parents[2]


@pytest.mark.redis
@pytest.mark.skipif(not NIGHTLY, reason="tests/cache/test_cache_table_machine.py draws lives")
def test_soak(tmp_path):
    need_server()
    out = tmp_path / "soak.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    # So short a run is still warming up: its memory grows more than a long one's.
    command = [
        sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--seconds", "15",
        "--ssd-path", str(tmp_path), "--most-growth-mib", "64", "--json", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())
    assert len(figures["checks"]) >= 15 and all(figures["checks"].values())
    assert figures["steps"] >= 200
    assert "checks passed" in done.stdout
    assert list(tmp_path.iterdir()) == [out]  # nothing is left behind
