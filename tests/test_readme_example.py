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
    found = re.search(r"'auc': ([0-9.]+)\} (\d+) rows", printed)
    assert found is not None, printed
    assert float(found[1]) > 0.95
    assert int(found[2]) == 2000
