# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the SSD tier runs and writes what it measured."""

from __future__ import annotations

import json

from tests.support.processes import ROOT, run_python


def test_ssd_tier(tmp_path):
    out = tmp_path / "ssd.json"
    printed = run_python(
        ROOT / "benchmarks" / "ssd_tier.py", "--rows", "20000", "--batch", "1000", "--reads", "3",
        "--fio-seconds", "0", "--buffered", "--dir", tmp_path, "--json", out,
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert figures["ssd"]["read_rows_per_second"] > 0
    assert figures["ssd"]["recovery_seconds"] > 0
    assert figures["fio_reads_per_second"] is None
    assert "fio is missing" in printed or "--fio-seconds" in printed
    assert not (tmp_path / "ssd_tier_benchmark").exists()
