# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the server runs and its figures add up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_serving_load_runs(tmp_path: Path) -> None:
    command = [
        sys.executable, "benchmarks/serving_load.py", "--json", str(tmp_path / "load.json"),
        "--keys", "5000", "--batch", "64", "--rate", "20", "--rounds", "1", "--seconds", "3",
    ]  # fmt: skip
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True, timeout=200
    )
    figures = json.loads((tmp_path / "load.json").read_text())
    assert figures["failed_requests"] == 0 and figures["error"] is None
    assert figures["deltas_released"] == figures["deltas_applied"] == 5
    assert figures["quiet_ms"]["requests"] >= 40 and figures["deltas_ms"]["requests"] >= 40
    assert 0 < figures["quiet_ms"]["p50"] <= figures["quiet_ms"]["p99"]
    assert figures["p99_ratio"] > 0
