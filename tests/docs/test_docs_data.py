# SPDX-License-Identifier: Apache-2.0
"""The page on reading data is one program: it runs, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_says(tmp_path: Path) -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "data.py").write_text(code, encoding="utf-8")
    expected = []
    for line in code.splitlines():
        if line.startswith("# "):
            expected.append(line[2:])
        elif line.startswith("print(") and "  # " in line:
            expected.append(line.rpartition("  # ")[2])
    assert len(expected) == 13
    assert run_python("data.py", cwd=tmp_path).splitlines() == expected
