# SPDX-License-Identifier: Apache-2.0
"""The defects can be put back into the tree as it is; `tests.defects.run` sees who finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.defects.all_defects import DEFECTS
from tests.defects.entry import ROOT, Defect, Edit
from tests.defects.tools import GoogleTest, NativeFuzz, Program, Pytest, PythonFuzz, Tool
from tests.fuzz.all_targets import MODULES
from tests.fuzz.harness import CORPUS

_NATIVE_TESTS = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "csrc").rglob("*.cc"))
)


def exists(tool: Tool) -> bool:
    """Whether there is what the tool runs."""
    if isinstance(tool, GoogleTest):
        suites = [name.split(".")[0].split("/")[-1].strip("*") for name in tool.names.split(":")]
        return all(re.search(rf"TEST\w*\({suite}\b", _NATIVE_TESTS) for suite in suites)
    if isinstance(tool, NativeFuzz):
        return (CORPUS / "native" / tool.target).is_dir()
    if isinstance(tool, PythonFuzz):
        return any(tool.target in names for names in MODULES.values())
    if isinstance(tool, Program):
        return (ROOT / Path(*tool.module.split("."))).with_suffix(".py").is_file()
    assert isinstance(tool, Pytest)
    return (ROOT / tool.names[0]).is_file()


def test_there_are_as_many_as_were_found() -> None:
    assert list(DEFECTS) == list(range(1, 23))


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=lambda defect: str(defect.number))
def test_a_defect_can_be_put_back(defect: Defect) -> None:
    assert defect.edits
    for edit in defect.edits:
        assert edit.applied(ROOT) != (ROOT / edit.file).read_text(encoding="utf-8")
    assert all(exists(tool) for tool in (defect.general, defect.regression) if tool is not None)


def test_code_that_has_moved_away_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a b a", encoding="utf-8")
    assert Edit("file", "b", "c").applied(tmp_path) == "a c a"
    for search, count in (("a", 2), ("d", 0)):
        with pytest.raises(ValueError, match=f"file has the text to replace {count} times"):
            Edit("file", search, "").applied(tmp_path)


@pytest.mark.parametrize(("file", "mark"), [("file.cc", "//"), ("file.py", "#")])
def test_comments_do_not_count(tmp_path: Path, file: str, mark: str) -> None:
    edit = Edit(file, f"a = 1;\n  {mark} Old words.\nb = 2;\n", "b = 2;\na = 1;\n")
    for comments in ("", f"  {mark} Other words,\n{mark} in two lines.\n"):
        text = f"  a = 1;\n{comments}b = 2;\nc = 3;\n"
        (tmp_path / file).write_text(text, encoding="utf-8")
        assert edit.applied(tmp_path) == "  b = 2;\na = 1;\nc = 3;\n"
    (tmp_path / file).write_text("a = 1;\nnew = 0;\nb = 2;\n", encoding="utf-8")
    with pytest.raises(ValueError, match="0 times"):
        edit.applied(tmp_path)
