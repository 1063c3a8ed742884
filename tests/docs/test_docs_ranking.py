# SPDX-License-Identifier: Apache-2.0
"""The page on rankings is one program: it runs as it is written, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "ranking.md").read_text(encoding="utf-8")


def test_what_the_program_prints(tmp_path: Path) -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "ranking.py").write_text(code)
    lines = run_python("ranking.py", cwd=tmp_path).splitlines()
    assert lines[0] == "4800 1000"
    assert lines[-4] == "True True"
    assert lines[-3].startswith("(1000, 5) ") and float(lines[-3].split()[-1]) > 0.9
    assert lines[-2].startswith("True ") and lines[-1] == "(1000,)"
