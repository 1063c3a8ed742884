# SPDX-License-Identifier: Apache-2.0
"""The example of a conversion runs, and shows what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "convert_network" / "convert_network.py"


def run(*arguments):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, env=environment
    )


def test_the_example_of_a_conversion(tmp_path):
    path = tmp_path / "figures.json"
    done = run("--steps", "30", "--vocabulary", "200", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert "HashEmbeddingLookup" in done.stdout
    assert "1,800 rows outside the vocabulary 0 .. 199" in done.stdout
    figures = json.loads(path.read_text())
    assert figures["rows"] == 2 * 2000
    assert figures["converted"] < 1e-6 and figures["reverted"] < 1e-6
    assert figures["auc"] > 0.9


def test_the_examples_command_line():
    assert "--vocabulary" in run("--help").stdout
    assert "--steps must be at least 1, got 0" in run("--steps", "0").stderr
