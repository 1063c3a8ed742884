# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the remote tier runs on a server of its own and writes what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.redis_server import need_server

ROOT = Path(__file__).parents[2]


@pytest.mark.redis
def test_redis_tier(tmp_path):
    need_server()
    out = tmp_path / "redis.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    command = [
        sys.executable, str(ROOT / "benchmarks" / "redis_tier.py"), "--rows", "6000", "--batch",
        "1000", "--batches", "10", "--json", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    for name in ("tier read, 1 threads", "tier write, 4 threads", "pipelined GET", "MSET"):
        assert figures[name]["rows_per_second"] > 0 and name in done.stdout
