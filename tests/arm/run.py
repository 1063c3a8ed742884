# SPDX-License-Identifier: Apache-2.0
"""Run the wheel for Arm under qemu's emulator, and compare it with this machine.

    bash build.sh arm                     # all parts: hours of an emulator's time
    bash build.sh arm -- --part digests   # one part
    bash build.sh arm -- --part pytest --tests tests/optim/test_optim_rules.py
    bash build.sh arm -- --part pytest --together  # in one process, which starts once

The parts:

* `digests`: tables, rows of int8 and int4 and deltas have the same bits on Arm as here.
* `readme`: the README's example learns.
* `golden`: checkpoints that an x86-64 machine wrote are read on Arm, bit for bit.
* `written`: a checkpoint that Arm wrote is read here, with the same digests.
* `cpp`: the C++ tests, linked with the objects of the wheel.
* `doctor`: `mindspore-rec doctor` finds that the library can be used, and prints its lines.
* `pytest`: the test files in `FILES`, less the tests that start other programs.

docs/wheels.md says which parts have been run to their end.

The system is made by `tests.arm.system`. What is missing on the machine is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from tests.arm.system import ROOT, ArmSystem

# A program of the emulated system cannot start another one, so these files start none.
FILES = (
    "tests/parameter",
    "tests/optim",
    "tests/nn/test_nn_embedding.py",
    "tests/nn/test_nn_embedding_bag.py",
    "tests/nn/test_nn_cross.py",
    "tests/cache/test_cache_same_bits.py",
    "tests/cache/test_cache_table_machine.py",
    "tests/checkpoint/test_checkpoint_deltas.py",
    "tests/checkpoint/test_checkpoint_parts.py",
    "tests/checkpoint/test_checkpoint_precision.py",
    "tests/checkpoint/test_checkpoint_tiers.py",
)
FILE_SECONDS = 3600.0  # of one test file under the emulator
# C++ tests that need system calls that qemu does not have, or that start another program.
CPP_LEFT_OUT = "*Uring*:TableBits.SameForEveryInstructionSet"


class System(Protocol):
    """A system in a folder of this machine, with Python and the wheel."""

    folder: Path

    def python(self, *arguments: str | Path, path: str = "", **variables: str) -> list[str]:
        """Return the command line of a Python program of the system."""
        ...


def run(command: list[str], cwd: Path = ROOT, **variables: str) -> str:
    """Run a command, which must end well, and return what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-6000:]}\nexit status {done.returncode}: {' '.join(command)}")
    return done.stdout


def digests(system: System) -> str:
    """Compare `tests.arm.digests` in the system with here."""
    # As a file, it imports the installed wheel and not the tree.
    program = ("-W", "ignore", str(ROOT / "tests/arm/digests.py"))
    there = json.loads(run(system.python(*program)))
    here = json.loads(run([sys.executable, *program], GLOG_v="3"))
    differing = [
        name for name, value in here["digests"].items() if there["digests"].get(name) != value
    ]
    if differing or there["digests"].keys() != here["digests"].keys():
        sys.exit(f"digests differ between {here['about']} and {there['about']}: {differing}")
    return f"{len(here['digests'])} digests are equal: {here['about']} and {there['about']}"


def readme(system: System) -> str:
    """Run the README's example in an empty folder, with the installed wheel alone."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    folder = empty(system.folder / "example")
    (folder / "example.py").write_text(code, encoding="utf-8")
    printed = run(system.python("-W", "ignore", "example.py"), cwd=folder)
    found = re.search(r"'auc': ([0-9.]+)", printed)
    if found is None or float(found[1]) < 0.95:
        sys.exit(printed)
    return f"the example's AUC is {found[1]}"


def golden(arm: ArmSystem) -> str:
    """Read the golden files on Arm."""
    return pytest(arm, ("tests/golden/test_golden_checkpoints.py",))


def written(arm: ArmSystem) -> str:
    """Write a run on Arm, and read it here."""
    folder = empty(arm.folder / "written")
    program = ("-W", "ignore", "-m", "tests.arm.written_run")
    noted = last_line(run(arm.python(*program, "write", folder, path=str(ROOT))))
    found = last_line(run([sys.executable, *program, "read", str(folder)], GLOG_v="3"))
    if noted != found:
        sys.exit(f"Arm wrote {noted}, and here is read {found}")
    return f"{len(found)} digests of a run that Arm wrote are equal here"


def cpp(arm: ArmSystem) -> str:
    """Link the C++ tests with the objects of the wheel, and run them."""
    objects = ROOT / "build/wheels/cp311-aarch64/build"
    if not objects.exists():
        sys.exit("there are no objects for Arm: bash build.sh wheels -- --machine aarch64")
    build = ROOT / "build" / "csrc-aarch64"
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": "aarch64-linux-gnu-g++",
        "CORE_OBJECTS": str(objects),
        "GTest_DIR": str(arm.root / "usr/lib/aarch64-linux-gnu/cmake/GTest"),
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    run(["cmake", "-S", "tests/csrc", "-B", str(build), "-G", "Ninja", *options])
    run(["ninja", "-C", str(build), "msrec_tests"])
    started = time.monotonic()
    printed = run(
        arm.command(
            *(build / "msrec_tests", "--gtest_brief=1", f"--gtest_filter=-{CPP_LEFT_OUT}"),
            MSREC_TEST_ONEDNN=str(arm.site / "mindspore/lib/libdnnl.so.3"),
        )
    )
    passed = re.search(r"\[  PASSED  \] (\d+) tests", printed)
    return f"{passed and passed[1]} C++ tests passed in {time.monotonic() - started:.0f} s"


def doctor(system: System) -> str:
    """Print what the doctor finds; return its last line, which must be good news."""
    outside = empty(system.folder / "outside")
    program = ("-W", "ignore", "-m", "mindspore_rec", "doctor", "--seconds", "900")
    printed = run(system.python(*program), cwd=outside)
    *lines, last = printed.strip().splitlines()
    print(*lines, sep="\n", flush=True)
    if last != "mindspore_rec can be used here":
        sys.exit(last)
    return last


def pytest(arm: ArmSystem, files: Sequence[str]) -> str:
    """Run each test file by itself; a test that starts another program is skipped at that moment.

    A line is printed for each file. All files are run, also after a failure.
    """
    options = ("-q", "-p", "no:cacheprovider", "-p", "tests.arm.no_processes", "--no-header")
    total: Counter[str] = Counter()
    for file in test_files(files):
        command = arm.python("-W", "ignore", "-m", "pytest", *options, file, path=str(ROOT))
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=FILE_SECONDS
            )
            found = outcomes(done.stdout)
            if done.returncode not in (0, 5) and not found["failed"]:  # 5: no test was chosen
                found["failed"] = 1
            if found["failed"]:
                print(done.stdout[-3000:], done.stderr[-1000:], sep="\n", flush=True)
        except subprocess.TimeoutExpired:
            found = Counter({"files over the time limit": 1})
        seconds = time.monotonic() - started
        print(f"  {file}: {in_words(found)} ({seconds:.0f} s)", flush=True)
        total += found
    if total["failed"] or total["files over the time limit"]:
        sys.exit(in_words(total))
    return in_words(total)


def pytest_together(arm: ArmSystem, files: Sequence[str]) -> str:
    """Run all test files in one process, which starts in a minute or more; print a line for each.

    The seconds of the first file include the start.
    """
    options = ("-v", "-p", "no:cacheprovider", "-p", "tests.arm.no_processes", "--no-header")
    program = ("-u", "-W", "ignore", "-m", "pytest", *options, *test_files(files))
    command = arm.python(*program, path=str(ROOT))
    total: Counter[str] = Counter()
    other: list[str] = []
    started = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        results = results_of(process.stdout, other)
        for file, outcomes_of_file in groupby(results, key=lambda result: result[0]):
            found = Counter(outcome for _, outcome in outcomes_of_file)
            print(f"  {file}: {in_words(found)} ({time.monotonic() - started:.0f} s)", flush=True)
            started = time.monotonic()
            total += found
    if process.returncode != 0:
        sys.exit(f"{''.join(other)[-20000:]}\n{in_words(total)}")
    return in_words(total)


def results_of(lines: Iterable[str], other: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the file and the outcome of each test; append all other lines to `other`."""
    for line in lines:
        result = result_of(line)
        if result is None:
            other.append(line)
        else:
            yield result


def result_of(line: str) -> tuple[str, str] | None:
    """Return the file and the outcome of a line of `pytest -v`; None for other lines.

    Example:
        >>> result_of("tests/a/test_b.py::test_c[1-2] PASSED         [ 12%]")
        ('tests/a/test_b.py', 'passed')
        >>> result_of("tests/a/test_b.py::test_d ERROR               [ 20%]")
        ('tests/a/test_b.py', 'failed')
    """
    found = re.match(r"(\S+\.py)::.* (PASSED|FAILED|SKIPPED|ERROR)(?: \(.*\))? +\[ *\d+%\]$", line)
    if found is None:
        return None
    return found[1], "failed" if found[2] == "ERROR" else found[2].lower()


def test_files(chosen: Sequence[str]) -> list[str]:
    """Return the test files among paths and in folders, relative to the tree."""
    found = []
    for each in chosen:
        path = ROOT / each
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return [str(each.relative_to(ROOT)) for each in found]


def outcomes(printed: str) -> Counter[str]:
    """Return the numbers in pytest's last line, by outcome; an error counts as a failure.

    Example:
        >>> outcomes("3 passed, 1 skipped, 1 error in 2.50s")
        Counter({'passed': 3, 'skipped': 1, 'failed': 1})
    """
    last = (printed.strip().splitlines() or [""])[-1]
    found: Counter[str] = Counter()
    for count, outcome in re.findall(r"(\d+) (passed|failed|skipped|error)", last):
        found["failed" if outcome == "error" else outcome] += int(count)
    return found


def in_words(found: Counter[str]) -> str:
    """Return counts as text, such as "3 passed, 1 skipped"."""
    return ", ".join(f"{count} {name}" for name, count in found.items() if count) or "no test"


def last_line(printed: str) -> dict[str, str]:
    """Return the JSON object that a program printed last."""
    found: dict[str, str] = json.loads(printed.splitlines()[-1])
    return found


def empty(folder: Path) -> Path:
    """Return the folder without files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


PARTS: dict[str, Callable[[ArmSystem], str]] = {
    "digests": digests,
    "readme": readme,
    "written": written,
    "golden": golden,
    "cpp": cpp,
    "doctor": doctor,
    "pytest": lambda arm: pytest(arm, FILES),
}


def main() -> None:
    """Run the parts that the command line names, or all."""
    parser = argparse.ArgumentParser(description="Run the wheel for Arm under qemu.")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--tests", action="append", help="files of `pytest`; default: FILES")
    parser.add_argument("--together", action="store_true", help="`pytest` in one process")
    parser.add_argument("--wheel", type=Path, help="default: that in output/wheels")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "arm")
    chosen = parser.parse_args()
    wheels = sorted((ROOT / "output/wheels").glob("mindspore_rec-*-cp311-*aarch64.whl"))
    if chosen.wheel is None and not wheels:
        sys.exit("there is no wheel for Arm: bash build.sh wheels -- --machine aarch64")
    arm = ArmSystem(chosen.folder, chosen.wheel or wheels[-1])
    for name in chosen.part or PARTS:
        started = time.monotonic()
        if name == "pytest":
            said = (pytest_together if chosen.together else pytest)(arm, chosen.tests or FILES)
        else:
            said = PARTS[name](arm)
        print(f"{name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
