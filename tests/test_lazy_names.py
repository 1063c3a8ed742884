# SPDX-License-Identifier: Apache-2.0
"""Packages whose names are imported when they are first used: all names are there, and right."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from tests.support.processes import ROOT, run_python
from tests.test_import_rule import faces

PACKAGES = ["mindspore_rec", *(f"mindspore_rec.{face}" for face in sorted(faces()))]


@pytest.mark.parametrize("name", PACKAGES)
def test_lazy_names_are_those_of_all(name: str) -> None:
    package = importlib.import_module(name)
    names = set(package.__all__) - {"__version__"}
    assert names <= set(dir(package))
    for each in sorted(names):
        found = getattr(package, each)
        assert not isinstance(found, ModuleType) or each == "functional", each
        assert getattr(found, "__name__", each).rpartition(".")[2] == each
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        _ = package.missing


def test_an_old_path_works_and_warns(tmp_path) -> None:
    quantised_file = importlib.import_module("mindspore_rec.checkpoint.quantised_file")
    with pytest.warns(DeprecationWarning, match="import read_quantized from mindspore_rec.checkp"):
        with pytest.raises(FileNotFoundError):
            quantised_file.read_quantised(tmp_path / "missing")


def test_importing_the_package_does_not_import_mindspore() -> None:
    printed = run_python(
        "-c",
        "import sys, mindspore_rec, mindspore_rec.serving, mindspore_rec.checkpoint\n"
        "print('mindspore' in sys.modules, mindspore_rec.nn.MLP.__name__, "
        "'mindspore' in sys.modules)",
        cwd=ROOT,
    )
    assert printed.split() == ["False", "MLP", "True"]
