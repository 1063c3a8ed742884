# SPDX-License-Identifier: Apache-2.0
"""Commands that install: an index has a different package under this library's name."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import mindspore_rec
from mindspore_rec.common import leftovers
from mindspore_rec.common.extras import EXTRAS, pip_install
from tests.support.processes import ROOT

TEXTS = [
    path
    for pattern in ("*.md", "*.py", "*.sh")
    for folder in ("mindspore_rec", "models", "examples", "benchmarks", "datasets", "docs", "tests")
    for path in (ROOT / folder).rglob(pattern)
] + [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "build.sh", "setup.py")
]


def test_no_page_or_message_installs_by_the_name() -> None:
    by_name = re.compile(r"""pip install[^\n]*?['" ]mindspore[-_]rec(?:['"`\[ ]|$)""", re.MULTILINE)
    by_name_of_extra = re.compile(r"mindspore[-_]rec\[\w")
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in TEXTS
        for line in path.read_text(encoding="utf-8").splitlines()
        if by_name.search(line) or by_name_of_extra.search(line)
    ]
    assert wrong == []


def test_extras_on_pages_are_those_of_the_wheel() -> None:
    installs = [
        extra
        for path in TEXTS
        for names in re.findall(r"\.whl\)\[([\w,]+)\]", path.read_text(encoding="utf-8"))
        for extra in names.split(",")
    ]
    assert installs and set(installs) <= set(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_command_of_a_message_names_packages(extra: str) -> None:
    command = shlex.split(pip_install(extra))
    assert command[:2] == ["pip", "install"]
    assert [str(Requirement(each)) for each in command[2:]] == [
        str(Requirement(each)) for each in EXTRAS[extra]
    ]


def imported(path: Path, *more: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[str(path), *map(str, more)]}; import mindspore_rec"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=True
    )


@pytest.mark.parametrize("info", ["mindspore_rec-0.3.0.dist-info", "mindspore.rec-0.2.0.egg-info"])
def test_upstreams_package_in_the_path_is_said_once(tmp_path: Path, info: str) -> None:
    (tmp_path / info).mkdir()
    said = imported(ROOT, tmp_path).stderr
    assert said.count("RuntimeWarning") == 1
    version = info.split("-")[1].removesuffix(".dist").removesuffix(".egg")
    remedy = "run `pip uninstall mindspore-rec`, then install the wheel"
    assert f"mindspore-rec {version} in {tmp_path}: {remedy}" in said


def test_upstreams_modules_among_ours_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "embedding.py").touch()
    monkeypatch.setattr(leftovers, "_HERE", tmp_path)
    with pytest.warns(RuntimeWarning, match="whose modules are among those in .*: run `pip unin"):
        leftovers.warn_of_upstream()


def test_other_versions_of_ours_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "mindspore_rec-0.4.1.dist-info").mkdir()
    (tmp_path / "mindspore_rec_serving-0.3.0.dist-info").mkdir()
    assert imported(ROOT, tmp_path).stderr == ""


def test_the_version_is_above_upstreams() -> None:
    assert tuple(map(int, mindspore_rec.__version__.split(".")[:2])) >= (0, 4)
