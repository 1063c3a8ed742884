# SPDX-License-Identifier: Apache-2.0
"""The example trains with tiers and finds the bits of the run in memory."""

from __future__ import annotations

import json

from tests.support.processes import ROOT, run_python

SCRIPT = ROOT / "examples" / "multi_level_cache" / "train.py"


def test_it_runs(tmp_path):
    out = tmp_path / "figures.json"
    printed = run_python(
        SCRIPT, "--steps", "30", "--batch", "256", "--cardinality", "20000", "--host-share", "0.4",
        "--ssd-path", tmp_path / "ssd", "--json", out, cwd=tmp_path,
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert figures["same_predictions"]
    assert "the same predictions, bit for bit: True" in printed
    stats = figures["tiers"]["stats"]
    assert figures["tiers"]["rows"] == figures["memory"]["rows"] > stats["host_capacity_rows"]
    assert stats["host_rows"] <= stats["host_capacity_rows"]
    assert stats["prefetched_rows"] > 0
    assert not list((tmp_path / "ssd").iterdir()), "the temporary directory is gone"
