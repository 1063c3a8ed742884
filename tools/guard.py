# SPDX-License-Identifier: Apache-2.0
"""Check, by digests of small seeded trainings, that a code change leaves results bit-identical.

    python tools/guard.py --json output/before.json        before the change
    python tools/guard.py --compare output/before.json     after it
    python tools/guard.py --other ../before                both, with another tree

Each run (`tests/guard/runs.py`) is a separate process and prints digests of tables, optimizer
state, dense weights and predictions. The bits of results may differ between processors, and between
versions of MindSpore, oneDNN and NumPy, so recordings are compared only on one machine, and no
recording is committed. A comparison exits with 1 if a digest differs, if a run fails, or if a run
exists on one side only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GLOG_v", "3")  # before MindSpore is imported

from tests.guard.comparison import compare, machine_lines
from tests.guard.machine import machine
from tests.guard.processes import records
from tests.guard.runs import RUNS


def recording(names: list[str], jobs: int) -> dict[str, Any]:
    """Return the results of this tree's runs, and a description of the machine."""
    runs: dict[str, Any] = {}
    with tqdm(total=len(names), unit="run") as bar:
        for name, record in records(names, jobs):
            runs[name] = asdict(record)
            bar.set_postfix_str(name)
            bar.update()
    return {"machine": machine(), "runs": {name: runs[name] for name in names}}


def recording_of(tree: Path, only: list[str] | None, jobs: int) -> dict[str, Any]:
    """Run the tool of another tree with that tree's interpreter, and return the results."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "recording.json"
        python = tree / ".venv" / "bin" / "python"
        options = ["--jobs", str(jobs), "--json", str(result), *(["--only", *only] if only else [])]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        subprocess.run([python, "tools/guard.py", *options], cwd=tree, env=environment)
        if not result.exists():
            raise SystemExit(f"tools/guard.py of {tree} wrote nothing")
        return dict(json.loads(result.read_text(encoding="utf-8")))


def show(before: dict[str, Any], now: dict[str, Any], only: list[str] | None) -> bool:
    """Print two recordings side by side; return whether the recordings are equal."""
    for line in machine_lines(before["machine"], now["machine"]):
        print(line)
    earlier = {name: run for name, run in before["runs"].items() if name in (only or [name])}
    lines, same = compare(earlier, now["runs"])
    print("\n".join(lines))
    return same


def failures(runs: dict[str, Any]) -> list[str]:
    """Return one line for each run that has no result."""
    words = ("failed", "missing")
    reasons = [(name, word, run[word]) for name, run in runs.items() for word in words]
    return [f"{name} {word}: {why}" for name, word, why in reasons if why]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, metavar="OUT", help="write the recording to OUT")
    beside = made.add_mutually_exclusive_group()
    beside.add_argument("--compare", type=Path, metavar="OUT", help="compare with this recording")
    beside.add_argument("--other", type=Path, metavar="TREE", help="compare with that tree's runs")
    made.add_argument("--only", nargs="+", choices=RUNS, metavar="NAME", help="only these runs")
    made.add_argument("--jobs", type=int, default=2, help="runs at a time; default: 2")
    made.add_argument("--list", action="store_true", help="print the names of the runs and end")
    return made


def main() -> int:
    """Record runs or compare recordings, as the options say; return the exit code."""
    options = parser().parse_args()
    if options.list:
        print("\n".join(RUNS))
        return 0
    names = options.only or list(RUNS)
    before = None
    if options.compare is not None:
        before = json.loads(options.compare.read_text(encoding="utf-8"))
    elif options.other is not None:
        before = recording_of(options.other.resolve(), options.only, options.jobs)
    now = recording(names, options.jobs)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    if before is not None:
        return 0 if show(before, now, options.only) else 1
    for line in failures(now["runs"]):
        print(line)
    return 1 if any(run["failed"] for run in now["runs"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
