# SPDX-License-Identifier: Apache-2.0
"""`build.sh test` runs every test once, in two processes, and fails where one of them does."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.run_python import ROOT

SCRIPT = (ROOT / "build.sh").read_text(encoding="utf-8")
FUNCTIONS = SCRIPT[
    : SCRIPT.index(
        "# ---------------------------------------------------------------- the command line"
    )
]
PYTEST = """#!/usr/bin/env python3
import signal, sys
default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
programs = any(each.startswith("tests/") for each in sys.argv)
print("programs" if programs else "others", default, *sys.argv[4:], flush=True)
sys.exit({programs} if programs else {others})
"""


def run(folder: Path, command: str, programs: int = 0, others: int = 0) -> tuple[int, list[str]]:
    (folder / "functions.sh").write_text(FUNCTIONS)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(PYTEST.format(programs=programs, others=others))
    python.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "-c", f"source {folder}/functions.sh\n{command}\n"],
        capture_output=True,
        text=True,
        # Also where this test run is in the background, which ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_each_folder_is_in_one_of_the_processes_and_ctrl_c_works_in_both(tmp_path: Path) -> None:
    code, (others, programs) = run(tmp_path, "JOBS=2; run_pytest")
    assert code == 0
    first, second = others.split(), programs.split()
    assert first[:2] == ["others", "True"] and second[:2] == ["programs", "True"]
    assert [each.removeprefix("--ignore=") for each in first[2:]] == second[2:]
    assert len(second) > 7 and all((ROOT / each).is_dir() for each in second[2:])


@pytest.mark.parametrize(("programs", "others"), [(1, 0), (0, 1), (2, 1), (5, 5)])
def test_it_fails_where_one_of_them_does_and_shows_both(
    tmp_path: Path, programs: int, others: int
) -> None:
    code, lines = run(tmp_path, "JOBS=4; run_pytest; echo never", programs, others)
    assert code == (programs or others)
    assert [line.split()[0] for line in lines] == ["others", "programs"]


@pytest.mark.parametrize("command", ["JOBS=1; run_pytest", "JOBS=2; run_pytest tests/nn -x"])
def test_one_process_on_one_cpu_and_for_chosen_tests(tmp_path: Path, command: str) -> None:
    _, (line,) = run(tmp_path, command)
    assert line.split()[2:] == command.split()[2:]


def test_what_needs_kafka_is_in_one_process() -> None:
    (folders,) = re.findall(r"^PROGRAM_TESTS=\(tests/\{(.*)\}\)$", SCRIPT, re.M)
    uses = re.compile(r"own_broker|broker:|Broker\(|need_broker\(")
    found = {
        file.relative_to(ROOT / "tests").parts[0]
        for file in (ROOT / "tests").rglob("*.py")
        if uses.search(file.read_text(encoding="utf-8")) and file != Path(__file__)
    }
    assert found and found <= set(folders.split(","))
