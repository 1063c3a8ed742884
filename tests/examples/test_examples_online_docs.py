# SPDX-License-Identifier: Apache-2.0
"""The programs of the guide to online learning run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import run_python

DOCS = Path(__file__).parents[2] / "docs"


def test_guide_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    text = (DOCS / "online_learning.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(# (\w+\.py)\n.*?)```", text, re.S)
    assert [name for _, name in blocks] == [
        "click_network.py", "train.py", "serve.py", "files.py", "stream.py",
    ]  # fmt: skip
    for code, name in blocks:
        (tmp_path / name).write_text(code, encoding="utf-8")

    def run(name: str) -> list[str]:
        return run_python(name, cwd=tmp_path).splitlines()

    (promised,) = re.findall(r"```\n(begins at.*?)```", text, re.S)
    printed = run("train.py") + run("train.py")
    assert [without_auc(line) for line in printed] == [
        without_auc(line) for line in promised.splitlines()
    ]
    for line, promise in zip(printed, promised.splitlines(), strict=True):
        if "AUC" in line:
            assert abs(float(line.split()[-1]) - float(promise.split()[-1])) < 0.02, line
    assert run("serve.py") == ["step 80 u7 clicks more than u0: [ True]"]

    (session,) = re.findall(r"```\n(\$ python files.py\n.*?)```", text, re.S)
    for said in re.findall(r"\$ python (.*)\n(.*)\n", session):
        assert run_python(*said[0].split(), cwd=tmp_path).splitlines() == [said[1]]


def without_auc(line: str) -> str:
    return re.sub(r"AUC: .*", "AUC", line)
