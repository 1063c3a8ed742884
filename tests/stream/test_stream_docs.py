# SPDX-License-Identifier: Apache-2.0
"""The guide's example runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import run_python

DOCS = Path(__file__).parents[2] / "docs"


def test_guide_runs(tmp_path: Path) -> None:
    text = (DOCS / "streams.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    script = tmp_path / "guide.py"
    script.write_text(example, encoding="utf-8")
    printed = run_python(str(script), cwd=tmp_path)
    found = re.search(r"150 batches \{'auc': ([0-9.]+)", printed)
    assert found is not None and float(found[1]) > 0.6, printed
