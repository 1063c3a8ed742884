# SPDX-License-Identifier: Apache-2.0
"""Nothing that a server reads can run code: no module of it has a decoder that would."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tools.serving_wheel import is_for_serving

FILES = sorted(
    name
    for path in (ROOT / "mindspore_rec").rglob("*.py")
    if is_for_serving(name := str(path.relative_to(ROOT)))
)
WRONG_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal",
                 "shelve", "yaml", "xmlrpc", "jsonpickle"}  # fmt: skip
WRONG_CALLS = {"eval", "exec", "compile", "__import__"}
WRONG_NAMES = {"read_pickle", "from_pickle", "loadtxt", "fromregex", "load_checkpoint"}


def findings(path: Path) -> list[str]:
    """Return the uses of pickle and its like in a module."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").split(".")[0]}
        else:
            names = set()
        found += sorted(names & WRONG_MODULES)
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in WRONG_CALLS:
                found.append(called.id)
            if isinstance(called, ast.Attribute):
                numpy_load = called.attr == "load" and ast.unparse(called.value) in ("np", "numpy")
                if numpy_load or called.attr in WRONG_NAMES:
                    found.append(ast.unparse(called))
            found += [word.arg for word in node.keywords if word.arg == "allow_pickle"]
    return found


@pytest.mark.parametrize("file", FILES)
def test_no_decoder_that_runs_code(file: str) -> None:
    assert findings(ROOT / file) == []


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import pickle\nimport numpy as np\nnp.load('x', allow_pickle=True)\neval('1')")
    assert sorted(findings(path)) == ["allow_pickle", "eval", "np.load", "pickle"]
