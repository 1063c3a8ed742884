# SPDX-License-Identifier: Apache-2.0
"""Nothing that a server reads can run code: no module of it has a decoder that would."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.processes import ROOT

MODULES = (ROOT / "tools" / "serving_modules.txt").read_text().split()
WRONG_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal",
                 "shelve", "yaml", "xmlrpc", "jsonpickle"}  # fmt: skip
WRONG_CALLS = {"eval", "exec", "compile", "__import__"}
WRONG_NAMES = {"read_pickle", "from_pickle", "loadtxt", "fromregex", "load_checkpoint"}


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


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


@pytest.mark.parametrize("module", MODULES)
def test_no_decoder_that_runs_code(module: str) -> None:
    path = source_of(module)
    if path.exists():  # `_native` and the version of the wheel are no source
        assert findings(path) == []


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import pickle\nimport numpy as np\nnp.load('x', allow_pickle=True)\neval('1')")
    assert sorted(findings(path)) == ["allow_pickle", "eval", "np.load", "pickle"]
