# SPDX-License-Identifier: Apache-2.0
"""The page on networks from a schema, run as it is written."""

from __future__ import annotations

import re

from mindspore_rec import models
from mindspore_rec.train.models.model_names import BUILT_IN
from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_programs_run(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "page.py").write_text(code + "\nprint(other.recipe())\n")
    printed = run_python("page.py", cwd=tmp_path)
    first, second = re.findall(r"\[\s*(-?\d+\.\d+)\s*\]", printed)
    assert float(first) > 1 and float(second) < -1
    assert "{'model': 'dcn_v2', 'settings': {" in printed
    assert "'model': 'perceptron', 'settings': {'hidden': [32]}" in printed


def test_the_table_has_every_model():
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    found = {name: class_name for class_name, name in rows}
    assert found == {name: models.get(name).__name__ for name in BUILT_IN}
