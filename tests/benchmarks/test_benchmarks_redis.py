# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the remote tier runs on a server of its own and writes what it measured."""

from __future__ import annotations

import json

import pytest

from tests.support.processes import ROOT, run_python
from tests.support.redis_server import need_server


@pytest.mark.redis
def test_redis_tier(tmp_path):
    need_server()
    out = tmp_path / "redis.json"
    printed = run_python(
        ROOT / "benchmarks" / "redis_tier.py", "--rows", "6000", "--batch", "1000", "--batches",
        "10", "--json", out,
    )  # fmt: skip
    figures = json.loads(out.read_text())
    for name in ("tier read, 1 threads", "tier write, 4 threads", "pipelined GET", "MSET"):
        assert figures[name]["rows_per_second"] > 0 and name in printed
