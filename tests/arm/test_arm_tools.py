# SPDX-License-Identifier: Apache-2.0
"""Tools that run tests under the emulator: they change nothing in a run on this machine."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

import tests.arm.no_processes
from tests.arm.run import in_words, outcomes, pytest_together, test_files as files_among
from tests.arm.system import ArmSystem
from tests.support.processes import ROOT

PROGRAM = """
import subprocess, sys
def test_python(): subprocess.run([sys.executable, "-c", ""], check=True)
def test_other(): subprocess.run(["true"], check=True)
"""


def test_an_import_of_the_plugin_skips_no_test() -> None:
    importlib.reload(tests.arm.no_processes)  # as pytest does in its search for doctests
    assert inspect.getfile(subprocess.Popen.__init__) == subprocess.__file__


@pytest.mark.parametrize(("plugin", "said"), [(True, "1 passed, 1 skipped"), (False, "2 passed")])
def test_the_plugin_skips_tests_that_start_python(tmp_path: Path, plugin: bool, said: str) -> None:
    (tmp_path / "test_it.py").write_text(PROGRAM)
    options = ["-p", "tests.arm.no_processes"] if plugin else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert in_words(outcomes(done.stdout)) == said, done.stdout


def test_files_and_their_outcomes() -> None:
    assert files_among(["tests/arm", "tests/optim/test_optim_rules.py"]) == [
        "tests/arm/test_arm_smoke.py",
        "tests/arm/test_arm_tools.py",
        "tests/optim/test_optim_rules.py",
    ]
    assert outcomes("") == {} and in_words(outcomes("")) == "no test"
    printed = "F\n1 failed, 3 passed, 2 skipped, 1 error in 1.00s"
    assert outcomes(printed) == {"failed": 2, "passed": 3, "skipped": 2}


class Here:
    """Stands for the emulated system: Python programs run on this machine."""

    def python(self, *arguments: str, path: str) -> list[str]:
        return [sys.executable, *arguments]


def test_files_in_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, extra in (("test_one", ""), ("test_two", "def test_wrong(): assert 1 == 2")):
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(PROGRAM + extra)
    arm = cast(ArmSystem, Here())
    relative = [os.path.relpath(each, ROOT) for each in files]
    assert pytest_together(arm, relative[:1]) == "1 skipped, 1 passed"
    assert "test_one.py: 1 skipped, 1 passed (" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2 skipped, 2 passed, 1 failed") as failure:
        pytest_together(arm, relative)
    assert "assert 1 == 2" in str(failure.value)
    assert "test_two.py: 1 skipped, 1 passed, 1 failed (" in capsys.readouterr().out
