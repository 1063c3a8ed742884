# SPDX-License-Identifier: Apache-2.0
"""Tables have the same bits on Arm as here: a C++ program under qemu, without MindSpore.

The whole run for Arm is `bash build.sh arm`. This test compiles only what a table needs.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.missing import missing
from tests.support.processes import ROOT

CSRC = ROOT / "mindspore_rec" / "csrc"
PROGRAM = (
    ROOT / "tests/arm/csrc/digest_main.cc",
    ROOT / "tests/csrc/support/table_digest.cc",
)
FOLDERS = ("policy", "rows", "table", "tier", "util")
OTHER_FILES = ("readers/quantised_lookup.cc", "readers/quantised_rows.cc")
# The bits of a row depend on these flags of setup.py.
FLAGS = ("-std=c++17", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
INCLUDES = (f"-I{CSRC}", f"-I{ROOT / 'tests/csrc/support'}")
CROSS = "aarch64-linux-gnu-g++"
EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def units(folder: Path) -> list[Path]:
    """Return the files to compile: the rows' loops, and one file per folder of code."""
    loops = sorted(CSRC.glob("rows/*_base.cc"))
    made = []
    for name in FOLDERS:
        files = [each for each in sorted((CSRC / name).rglob("*.cc")) if "_avx" not in each.name]
        unit = folder / f"{name}.cc"
        unit.write_text("".join(f'#include "{each}"\n' for each in files if each not in loops))
        made.append(unit)
    return [*loops, *made, *(CSRC / each for each in OTHER_FILES)]


def compile_for_arm(folder: Path) -> Path:
    """Compile the program for Arm; the rows' loops are optimised as in the wheel."""

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        level = "-O3" if source.stem.endswith("_base") else "-O1"
        run(CROSS, *FLAGS, level, "-march=armv8-a", *INCLUDES, "-w", "-c", source, "-o", made)
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [*units(folder), *PROGRAM]))
    run(CROSS, "-static", *objects, "-o", folder / "arm", "-pthread")
    return folder / "arm"


def link_here(folder: Path) -> Path:
    """Compile the program with the objects of the core that was compiled in place."""
    native = (ROOT / "build" / "native").rglob("*.o")
    objects = [each for each in native if not each.stem.startswith(("bindings", "shim"))]
    if not objects:
        missing("native", "the core's objects: bash build.sh prepare")
    options = (*FLAGS, "-O1", *INCLUDES)
    run("g++", *options, *PROGRAM, *objects, "-o", folder / "here", "-pthread", "-ldl")
    return folder / "here"


def test_tables_have_the_same_bits_on_arm(tmp_path: Path) -> None:
    emulator = next(filter(shutil.which, EMULATORS), None)
    if emulator is None or shutil.which(CROSS) is None:
        missing("arm", "an emulator and a compiler: qemu-user and g++-aarch64-linux-gnu")
    here = run(link_here(tmp_path)).split()
    there = run(emulator, compile_for_arm(tmp_path)).split()
    assert len(set(here)) == 2  # the draws of the second one are rounded otherwise
    assert there == here, platform.machine()
