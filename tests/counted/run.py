# SPDX-License-Identifier: Apache-2.0
"""Count instructions of work of a fixed size, and compare them with a table.

    python -m tests.counted.run [--programs DIRECTORY] [--update] [--only CASE]

Cases are counted by valgrind's callgrind, which says the same from run to run where times do not.
A case that is more than 3 % off fails, and the functions that have changed are named. Counts are of
a compiler, a C library and a processor: with others the comparison is shown, and does not fail.
`--update` writes the table.

So that counts are the same on processors with other instruction sets, kernels are those without
AVX (MINDSPORE_REC_SIMD=base), and the C library chooses its functions as for such a processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.counted.compare import compare, entry_of
from tests.counted.profile import read_profile

__all__ = ["TABLE"]

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("counts.json")
PROGRAMS = ROOT / "build" / "csrc-native"

# Valgrind shows one processor, whatever is below, but for some features that it passes on.
_TUNABLES = {
    "glibc.cpu.hwcaps": "-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-RTM,-BMI1,-BMI2,-LZCNT",
    "glibc.cpu.x86_data_cache_size": "32768",
    "glibc.cpu.x86_shared_cache_size": "1048576",
    "glibc.cpu.x86_non_temporal_threshold": "3145728",
}
ENVIRONMENT = {
    "GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _TUNABLES.items()),
    "MINDSPORE_REC_HASH_SEED": "counted",
    "MINDSPORE_REC_NUM_THREADS": "1",
    "MINDSPORE_REC_SIMD": "base",
}


def setting(program: Path) -> dict[str, str]:
    """Return what counts depend on."""
    said = subprocess.check_output([program, "--setting"], text=True)
    compiler, libc = said.rsplit(maxsplit=1)
    return {"machine": _processor(), "libc": libc, "compiler": compiler}


def _processor() -> str:
    """Return architecture, vendor, family and model: libraries choose code by them.

    That counts are equal on two of them has not been shown yet.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    said = [fields[name] for name in ("vendor_id", "cpu family", "model") if name in fields]
    return " ".join([platform.machine(), *said])


def count(program: Path, case: str) -> Counter[str]:
    """Return the instructions of a case by function.

    Raises:
        RuntimeError: the program failed, or nothing was counted.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "profile"
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
        valgrind += ["--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={out}"]
        done = subprocess.run(
            [*valgrind, str(program), case],
            env={"PATH": os.environ["PATH"], "TMPDIR": directory, **ENVIRONMENT},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} {case} failed:\n{done.stdout}{done.stderr}")
        with open(out, encoding="utf-8") as file:
            found = read_profile(file)
    if not found:
        raise RuntimeError(f"{program} {case}: nothing was counted")
    return found


def check(now: dict[str, str], table: dict[str, Any], found: dict[str, Counter[str]]) -> bool:
    """Print how cases compare with the table; return whether all are fine."""
    of = table.get("setting", {})
    if of != now:
        print(f"the table is of {of}, this is {now}: whatever differs, this does not fail")
    fine = True
    for case, functions in found.items():
        result = compare(case, table.get("cases", {}).get(case), functions)
        print(*result.lines, sep="\n", flush=True)
        fine &= result.fine
    return fine or of != now


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=Path, default=PROGRAMS, help="where they are compiled")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--only", help="name of one case; default: all")
    options = parser.parse_args()
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    program = options.programs / "msrec_counted"
    cases = subprocess.check_output([program], text=True).split()
    if options.only not in (None, *cases):
        parser.error(f"--only must be one of {', '.join(cases)}")
    now = setting(program)
    found = {case: count(program, case) for case in cases if options.only in (None, case)}
    if options.update:
        others = table.get("cases", {}) if options.only else {}
        made = {case: entry_of(functions) for case, functions in found.items()}
        table = {"setting": now, "cases": {**others, **made}}
        TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    fine = check(now, table, found)
    if not fine:
        print("where the change is meant: bash build.sh count -- --update, and commit the table")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
