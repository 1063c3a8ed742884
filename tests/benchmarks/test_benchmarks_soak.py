# SPDX-License-Identifier: Apache-2.0
"""A short soak of all tiers: every invariant at the end, memory within bounds."""

from __future__ import annotations

import json

import pytest

from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT, run_python
from tests.support.redis_server import need_server


@pytest.mark.redis
@pytest.mark.skipif(not NIGHTLY, reason="tests/cache/test_cache_table_machine.py draws lives")
def test_soak(tmp_path):
    need_server()
    out = tmp_path / "soak.json"
    # So short a run is still warming up: its memory grows more than a long one's.
    printed = run_python(
        ROOT / "benchmarks" / "soak.py", "--seconds", "15", "--ssd-path", tmp_path,
        "--most-growth-mib", "64", "--json", out,
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert len(figures["checks"]) >= 15 and all(figures["checks"].values())
    assert figures["steps"] >= 200
    assert "checks passed" in printed
    assert list(tmp_path.iterdir()) == [out]  # nothing is left behind
