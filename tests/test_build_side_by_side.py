# SPDX-License-Identifier: Apache-2.0
"""build.sh runs commands side by side, shows what each printed, and fails where one does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.slow_tests import FIRST
from tests.support.waiting import wait_until

SCRIPT = (ROOT / "build.sh").read_text(encoding="utf-8")
FUNCTIONS = SCRIPT[
    : SCRIPT.index(
        "# ---------------------------------------------------------------- the command line"
    )
]


def begin(folder: Path, command: str) -> subprocess.Popen[str]:
    (folder / "functions.sh").write_text(FUNCTIONS)
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.Popen(
        [bash, "-c", f"source {folder}/functions.sh\n{command}\n"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
        # Also where this test run is in the background, which ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(folder: Path, command: str) -> tuple[int, list[str]]:
    process = begin(folder, command)
    out, err = process.communicate(timeout=120)
    assert err == ""
    assert [path.name for path in folder.iterdir() if path.name.startswith("tmp.")] == []
    return process.returncode, out.splitlines()


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 0), (0, 4), (5, 6)])
def test_outputs_come_in_order_and_each_failure_counts(tmp_path, first, second):
    work = 'work() { echo "begin $1"; sleep "$2"; echo "end $1" >&2; return "$3"; }\n'
    jobs = f"start work a 0.3 {first}; start work b 0 {second}; echo between; join; echo after"
    code, lines = run(tmp_path, work + jobs)
    assert code == (second or first)
    shown = ["between", "begin a", "end a", "begin b", "end b"]
    assert lines == (shown if code else [*shown, "after"])


def test_a_started_function_stops_at_its_first_error(tmp_path):
    code, lines = run(tmp_path, "work() { echo one; false; echo two; }\nstart work; join")
    assert (code, lines) == (1, ["one"])


def test_it_can_be_used_again(tmp_path):
    code, lines = run(tmp_path, "start echo a; join; start echo b; start echo c; join; join")
    assert (code, lines) == (0, ["a", "b", "c"])


@pytest.mark.parametrize("how", ["an error", "Ctrl-C"])
def test_what_was_started_ends_with_the_script(tmp_path, how):
    """Also what it has started itself, and though bash has background processes ignore Ctrl-C."""
    note = tmp_path / "pid"
    work = f"work() {{ sleep 600 & echo $! >{note}; wait; }}\nstart work\n"
    until = f"until [[ -s {note} ]]; do sleep 0.05; done\n"
    process = begin(tmp_path, work + until + ("false" if how == "an error" else "join"))
    while not (note.exists() and note.read_text().strip()):
        assert process.poll() is None
        time.sleep(0.02)
    if how == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == (1 if how == "an error" else 130)
    state = Path(f"/proc/{note.read_text().strip()}/stat")
    wait_until(
        lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", 60
    )


def test_tests_of_a_program_are_shared_out(tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS: $*"\n')
    program.chmod(0o755)
    code, lines = run(tmp_path, f"JOBS=3; run_shards {program} --gtest_filter='A*'")
    given = "--gtest_filter=A* --gtest_brief=1"
    assert code == 0
    assert sorted(lines) == sorted(f"{i} of 36: {given}" for i in range(36))


def test_a_long_test_holds_up_no_other(tmp_path):
    """The first share ends only when another process has run all others."""
    program = tmp_path / "program"
    program.write_text(
        f"""#!/bin/sh
cd {tmp_path}
echo $GTEST_SHARD_INDEX >>begun
[ $GTEST_SHARD_INDEX = 0 ] || exit 0
for i in $(seq 600); do
  [ $(wc -l <begun) = 24 ] && echo all others && exit 0
  sleep 0.1
done
exit 1
"""
    )
    program.chmod(0o755)
    assert run(tmp_path, f"JOBS=2; run_shards {program}") == (0, ["all others"])


def test_all_tests_run_though_some_fail(tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$GTEST_SHARD_INDEX"\n[ "$GTEST_SHARD_INDEX" != 5 ]\n')
    program.chmod(0o755)
    code, lines = run(tmp_path, f"JOBS=2; run_shards {program}; echo never")
    assert code == 1
    assert sorted(map(int, lines)) == list(range(24))


@pytest.mark.parametrize(
    ("arguments", "shared_out"), [("", True), ("tests/nn", False), ("-k lookup -x", False)]
)
def test_all_tests_are_shared_out_and_chosen_ones_are_not(tmp_path, arguments, shared_out):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$*"\nexit 5\n')
    python.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(python)
    shell = f"JOBS=2; VENV={tmp_path}; pytest_processes() {{ echo 4; }}"
    code, (line,) = run(tmp_path, f"{shell}; run_pytest {arguments}; echo never")
    assert code == 5
    assert line.startswith("-m pytest")
    assert ("-n 4 --dist loadfile" in line) == shared_out
    assert line.endswith(arguments)


@pytest.mark.parametrize(("fit", "processes"), [("0", 1), ("3", 3), ("64", 4), ("", 4)])
def test_processes_of_pytest_have_memory(tmp_path, fit, processes):
    code, lines = run(tmp_path, f"JOBS=2; awk() {{ echo {fit}; }}; pytest_processes")
    assert code == 0 and lines == [str(processes)]


def test_the_files_that_begin_are_there():
    assert [name for name in FIRST if not (ROOT / name).is_file()] == []
