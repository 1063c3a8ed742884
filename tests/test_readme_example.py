# SPDX-License-Identifier: Apache-2.0
"""The README's example runs as it is written."""

from __future__ import annotations

import re

from tests.support.processes import ROOT, run_python


def test_readme_example_learns(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    printed = run_python("-W", "error::RuntimeWarning", str(script), cwd=tmp_path)
    auc = re.search(r"'auc': ([0-9.]+)", printed)
    assert auc is not None and float(auc[1]) > 0.95, printed
    scores = re.search(r"\[([0-9. e+-]+)\]\s*$", printed)
    assert scores is not None and len(scores[1].split()) == 5, printed
