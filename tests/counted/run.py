# SPDX-License-Identifier: Apache-2.0
"""Count instructions of work of a fixed size, and compare them with a table.

    python -m tests.counted.run [--programs DIRECTORY] [--update] [--only CASE]

Cases are counted by valgrind's callgrind, which says the same from run to run where times do not.
A case that is more than 3 % off fails, and the functions that have changed are named. Counts are of
a compiler, a C library and the processor that valgrind plays, the decoding of requests also of the
versions of Python and its libraries: with others the comparison is shown, and does not fail.
`--update` writes the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.counted.callgrind import count, setting
from tests.counted.compare import compare, entry_of
from tests.counted.decoding import count_decoding

__all__ = ["TABLE"]

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("counts.json")
PROGRAMS = ROOT / "build" / "csrc-native"

_DECODING = "decoding"
_PARTS = ("native", _DECODING)


def check(
    now: dict[str, str],
    table: dict[str, Any],
    found: Mapping[str, Counter[str]],
    bytecodes: Mapping[str, dict[str, int]],
) -> bool:
    """Print how cases compare with their part of the table; return whether all are fine."""
    of = table.get("setting", {})
    if of != now:
        print(f"the table is of {of}, this is {now}: whatever differs, this does not fail")
    fine = True
    for case, functions in found.items():
        known = table.get("cases", {}).get(case)
        result = compare(case, known, functions, bytecodes.get(case, {}))
        print(*result.lines, sep="\n", flush=True)
        fine &= result.fine
    return fine or of != now


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=Path, default=PROGRAMS, help="where they are compiled")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--only", help=f"name of one case, or {_DECODING}; default: all")
    options = parser.parse_args()
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    program = options.programs / "msrec_counted"
    cases = subprocess.check_output([program], text=True).split()
    if options.only not in (None, _DECODING, *cases):
        parser.error(f"--only must be one of {', '.join([*cases, _DECODING])}")
    now = setting(program)
    fine = True
    for part in _PARTS:
        of_part = now
        found: dict[str, Counter[str]] = {}
        bytecodes: dict[str, dict[str, int]] = {}
        if part == _DECODING:
            if options.only not in (None, _DECODING):
                continue
            meter = options.programs / "libmsrec_meter.so"
            versions, found, bytecodes = count_decoding(meter)
            of_part = {**now, **versions}
        else:
            chosen = [case for case in cases if options.only in (None, case)]
            found = {case: count([program, case])[0][""] for case in chosen}
        if not found:
            continue
        if options.update:
            others = table.get(part, {}).get("cases", {}) if options.only else {}
            made = {case: entry_of(each, bytecodes.get(case)) for case, each in found.items()}
            table[part] = {"setting": of_part, "cases": {**others, **made}}
        fine &= check(of_part, table.get(part, {}), found, bytecodes)
    if options.update:
        TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    if not fine:
        print("where the change is meant: bash build.sh count -- --update, and commit the table")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
