# SPDX-License-Identifier: Apache-2.0
"""The README's example runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_readme_example_learns(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"'auc': ([0-9.]+)\} (\d+) rows", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) > 0.95
    assert int(found[2]) == 2000
