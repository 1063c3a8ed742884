# SPDX-License-Identifier: Apache-2.0
"""Packages whose names are imported when they are first used: all names are there, and right."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from tests.support.processes import ROOT, run_python

PACKAGES = [
    f"mindspore_rec{room}"
    for room in ("", ".checkpoint", ".feature", ".graph", ".parameter", ".serving", ".stream")
]


@pytest.mark.parametrize("name", PACKAGES)
def test_lazy_names_are_those_of_all(name: str) -> None:
    package = importlib.import_module(name)
    names = set(package.__all__) - {"__version__"}
    assert names <= set(dir(package))
    for each in sorted(names):
        found = getattr(package, each)
        assert not isinstance(found, ModuleType), each
        assert getattr(found, "__name__", each) == each
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        _ = package.missing


def test_a_function_is_not_hidden_by_the_module_of_its_name() -> None:
    printed = run_python(
        "-c",
        "import mindspore_rec.compat.convert as whole\n"
        "import mindspore_rec.compat.create_table\n"
        "from mindspore_rec.feature import convert, create_table\n"
        "from mindspore_rec import feature\n"
        "print(convert is feature.convert, callable(convert), callable(create_table))",
        cwd=ROOT,
    )
    assert printed.split() == ["True", "True", "True"]


def test_importing_the_package_does_not_import_mindspore() -> None:
    printed = run_python(
        "-c",
        "import sys, mindspore_rec, mindspore_rec.serving, mindspore_rec.checkpoint\n"
        "print('mindspore' in sys.modules, mindspore_rec.nn.MLP.__name__, "
        "'mindspore' in sys.modules)",
        cwd=ROOT,
    )
    assert printed.split() == ["False", "MLP", "True"]
