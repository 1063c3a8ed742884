# SPDX-License-Identifier: Apache-2.0
"""The guide's example runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_guide_runs(tmp_path: Path) -> None:
    text = (DOCS / "streams.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    script = tmp_path / "guide.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(DOCS.parent), "GLOG_v": "3"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"150 batches \{'auc': ([0-9.]+)", done.stdout)
    assert found is not None and float(found[1]) > 0.6, done.stdout
