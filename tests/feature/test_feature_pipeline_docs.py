# SPDX-License-Identifier: Apache-2.0
"""The guide's examples run as they are written; names of the migration table exist."""

from __future__ import annotations

import re
from pathlib import Path

import mindspore_rec
from mindspore_rec.common.old_names import ARGUMENTS
from tests.support.processes import run_python

DOCS = Path(__file__).parents[2] / "docs"


def test_guide_runs(tmp_path):
    text = (DOCS / "features.md").read_text(encoding="utf-8")
    example, session = re.findall(r"```python\n(.*?)```", text, re.S)
    script = tmp_path / "guide.py"
    script.write_text(example + session, encoding="utf-8")
    printed = run_python(str(script), cwd=tmp_path)
    found = re.search(r"'auc': ([0-9.]+)\}", printed)
    assert found is not None, printed
    assert float(found[1]) > 0.9


def test_new_names_exist():
    text = (DOCS / "from_rec_sdk.md").read_text(encoding="utf-8")
    table = text[: text.index("## Combinations that only")]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    right = [line.split(" | ", 1)[1] for line in rows]
    methods = {name for cell in right for name in re.findall(r"`table\.([a-z_]+)\(", cell)}
    names = {name for cell in right for name in re.findall(r"`([A-Za-z_]+)(?:\(.*?\))?`", cell)}
    assert len(methods) > 3 and len(names) > 15
    for name in names - {"MapParameter"}:
        assert hasattr(mindspore_rec, name), name
    for name in methods:
        assert hasattr(mindspore_rec.MapParameter, name), name


def test_refused_options_are_named():
    text = (DOCS / "from_rec_sdk.md").read_text(encoding="utf-8")
    for option in ("max_steps", "train_steps", "eval_steps", "save_steps", "if_load", "bind_cpu"):
        assert option in ARGUMENTS["init"]
        assert f"`{option}`" in text
