# SPDX-License-Identifier: Apache-2.0
"""Run the wheel for Arm under qemu's emulator, and compare it with this machine.

    bash build.sh arm                     # all parts: hours of an emulator's time
    bash build.sh arm -- --part digests   # one part

The parts:

* `digests`: tables, rows of int8 and int4 and deltas have the same bits on Arm as here.
* `readme`: the README's example learns.
* `golden`: checkpoints that an x86-64 machine wrote are read on Arm, bit for bit.
* `written`: a checkpoint that Arm wrote is read here, with the same digests.
* `cpp`: the C++ tests, linked with the objects of the wheel.
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
from collections.abc import Callable
from pathlib import Path

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
# C++ tests that need system calls that qemu does not have, or that start another program.
CPP_LEFT_OUT = "*Uring*:TableBits.SameForEveryInstructionSet"


def run(command: list[str], cwd: Path = ROOT, **variables: str) -> str:
    """Run a command, which must end well, and return what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-6000:]}\nexit status {done.returncode}: {' '.join(command)}")
    return done.stdout


def digests(arm: ArmSystem) -> str:
    """Compare `tests.arm.digests` on Arm with here."""
    program = ("-W", "ignore", "-m", "tests.arm.digests")
    on_arm = json.loads(run(arm.python(*program, path=str(ROOT))))
    here = json.loads(run([sys.executable, *program], GLOG_v="3"))
    differing = [
        name for name, value in here["digests"].items() if on_arm["digests"].get(name) != value
    ]
    if differing or on_arm["digests"].keys() != here["digests"].keys():
        sys.exit(f"digests differ between {here['about']} and {on_arm['about']}: {differing}")
    return f"{len(here['digests'])} digests are equal: {here['about']} and {on_arm['about']}"


def readme(arm: ArmSystem) -> str:
    """Run the README's example in an empty folder, with the installed wheel alone."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    folder = empty(arm.folder / "example")
    (folder / "example.py").write_text(code, encoding="utf-8")
    printed = run(arm.python("-W", "ignore", "example.py"), cwd=folder)
    found = re.search(r"'auc': ([0-9.]+)", printed)
    if found is None or float(found[1]) < 0.95:
        sys.exit(printed)
    return f"the example's AUC is {found[1]}"


def golden(arm: ArmSystem) -> str:
    """Read the golden files on Arm."""
    return pytest(arm, ["tests/golden/test_golden_checkpoints.py"])


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


def pytest(arm: ArmSystem, files: list[str]) -> str:
    """Run files with tests; a test that starts another program is skipped at that moment."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "tests.arm.no_processes", "--no-header")
    command = arm.python("-W", "ignore", "-m", "pytest", *options, *files, path=str(ROOT))
    return run(command).strip().splitlines()[-1]


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
    "pytest": lambda arm: pytest(arm, list(FILES)),
}


def main() -> None:
    """Run the parts that the command line names, or all."""
    parser = argparse.ArgumentParser(description="Run the wheel for Arm under qemu.")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--wheel", type=Path, help="default: that in output/wheels")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "arm")
    chosen = parser.parse_args()
    wheels = sorted((ROOT / "output/wheels").glob("mindspore_rec-*-cp311-*aarch64.whl"))
    if chosen.wheel is None and not wheels:
        sys.exit("there is no wheel for Arm: bash build.sh wheels -- --machine aarch64")
    arm = ArmSystem(chosen.folder, chosen.wheel or wheels[-1])
    for name in chosen.part or PARTS:
        started = time.monotonic()
        said = PARTS[name](arm)
        print(f"{name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
