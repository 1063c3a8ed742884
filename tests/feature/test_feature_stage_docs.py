# SPDX-License-Identifier: Apache-2.0
"""The guide's example of one stage for all runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import run_python

GUIDE = Path(__file__).parents[2] / "docs" / "features.md"


def test_the_stage_of_the_guide_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```py\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    shown = "print(event_time, list(columns), list(again), columns['dense'].tolist())\n"
    (tmp_path / "stage.py").write_text(example + shown, encoding="utf-8")
    printed = run_python("stage.py", cwd=tmp_path)
    assert printed.splitlines()[-1] == (
        "1767225601 ['user', 'hour', 'ids', 'dense', 'label'] ['user', 'ids'] [[0.0], [1.0]]"
    )
