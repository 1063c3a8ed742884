# SPDX-License-Identifier: Apache-2.0
"""The page on histories: its programs run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "histories.md").read_text(encoding="utf-8")


def test_what_the_programs_print(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 2
    (tmp_path / "histories.py").write_text("".join(programs))
    lines = run_python("histories.py", cwd=tmp_path).splitlines()
    assert lines == ["['auc', 'log_loss']", "(3,) (3,)"]
