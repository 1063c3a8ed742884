# SPDX-License-Identifier: Apache-2.0
"""Change the code at one place at a time, and see whether the tests of its room notice.

    python -m tests.mutants --minutes 80 --json output/mutants.json

Named mutants are the defects of `tests/defects`, and defects that were mended later
(`tests/mutants/mended.py`): the tests that came with their mends must fail. Others are drawn by the
commit's hash from the rooms rows, table, stream and checkpoint, half of them C++. Mutants that no
test finds are listed: each gets a test, or a sentence in `tests/mutants/equivalents.json` that says
why nobody can notice. Ends with 1 if a named mutant was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from tests.defects.all_defects import DEFECTS
from tests.defects.build import Tree
from tests.defects.entry import ROOT, Defect
from tests.defects.tools import GoogleTest, run_tool
from tests.mutants.clean import CleanRuns
from tests.mutants.draw import ROOMS, draw, survivors
from tests.mutants.equivalents import Equivalents
from tests.mutants.judge import Judge, Verdict
from tests.mutants.mended import MENDED
from tests.mutants.mutant import Mutant
from tests.mutants.report import Named, Report

_NATIVE_TESTS = ROOT / "build" / "csrc-native"
# So many lives of tables, of each kind: a mutant shall meet all kinds rather than many lives.
_SETTINGS = "lives=10"
# A mutant may ask for any memory: it gets an error and not the machine's.
_MEMORY = 12 << 30
# A test that hangs is ended so many times sooner than by its limit, which is ample.
_SOONER = 3

KINDS = ("named", "native", "python")

Outcome = Named | Verdict
Task = Callable[[Tree], Outcome | None]


def build_native_tests(jobs: int) -> None:
    """Build the C++ tests, as `bash build.sh test` does; nothing if they are there."""
    core = f"-DCORE_OBJECTS={ROOT / 'build' / 'native'}"
    configure = ["cmake", "-S", "tests/csrc", "-B", str(_NATIVE_TESTS), "-G", "Ninja", core]
    for command in (
        [*configure, "-DONLY="],
        ["ninja", "-C", str(_NATIVE_TESTS), "-j", str(jobs), "--quiet", "msrec_tests"],
    ):
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def judge_of(tree: Tree, kinds: set[str], jobs: int) -> Judge:
    """Return a judge who knows what the tests run, and for how long, in a tree as it is."""
    clean = CleanRuns(tree.root, tree.root.with_name("clean.json"))
    native_times: dict[str, dict[str, float]] = {}
    names: set[str] = set()
    if "native" in kinds:
        tree.build([GoogleTest()])
        for room in ROOMS:
            names |= set(room.outer_tests)
            times = [clean.of_native(tree.program, each) for each in room.native_tests]
            native_times[room.name] = {name: each for some in times for name, each in some.items()}
    if "python" in kinds:
        names |= set(tests_of_rooms())
    return Judge(native_times, clean.of_files(sorted(names), jobs), Equivalents())


def tests_of_rooms() -> list[str]:
    """Return the rooms' files of tests in Python."""
    tests = [ROOT / each for room in ROOMS for each in room.tests]
    files = [
        file for each in tests for file in ([each] if each.is_file() else each.rglob("test_*.py"))
    ]
    return [file.relative_to(ROOT).as_posix() for file in files]


def judge_named(defect: Defect, tree: Tree) -> Named:
    """Put a defect back, and run the test that came with its mend."""
    tool = defect.regression
    if defect.hangs:
        tool = replace(tool, limit=tool.limit / _SOONER)
    number, sentence = defect.number, defect.sentence
    try:
        with tree.with_edits(defect.edits, {tool.needs}):
            tree.build([tool])
            finding = run_tool(tool, tree.root)
    except subprocess.CalledProcessError as error:
        return Named(number, sentence, "does not compile", str(error.stderr)[-300:])
    is_found = finding.outcome == "found" or (finding.outcome == "hangs" and defect.hangs)
    outcome = "killed" if is_found else "survived"
    seconds = round(finding.seconds, 1)
    return Named(number, sentence, outcome, finding.said, tool.title, seconds)


def judge_first(judge: Judge, mutants: Iterator[Mutant], tree: Tree) -> Verdict | None:
    """Judge the first mutant that compiles; None if there is none."""
    verdicts = (judge.judge(mutant, tree) for mutant in mutants)
    return next((each for each in verdicts if each.outcome != "does not compile"), None)


def run_tasks(tasks: Sequence[Task], trees: Sequence[Tree], end: float) -> Iterator[Outcome]:
    """Yield what comes of tasks; as many run as there are trees, and none begins after `end`."""
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def run(task: Task) -> Outcome | None:
        tree = free.get()
        try:
            return task(tree) if time.monotonic() < end else None
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        done = tqdm(pool.map(run, tasks), total=len(tasks), unit="mutant", desc="mutants")
        yield from (each for each in done if each is not None)


def run_mutants(options: argparse.Namespace, end: float) -> Iterator[Report]:
    """Try mutants until all were tried, or until `end`.

    Args:
        options: of the command.
        end: time of the monotonic clock.

    Yields:
        The report of all mutants up to each one.
    """
    kinds = set(options.only or (("native", "python") if options.again else KINDS))
    seed, count, jobs, again = options.seed or head(), options.draw, options.jobs, options.again
    if kinds & {"named", "native"}:
        build_native_tests(jobs)
    trees = [Tree(options.trees / f"tree{number}", 1, _NATIVE_TESTS) for number in range(jobs)]
    named: list[Task] = []
    if "named" in kinds:
        defects = [*DEFECTS.values(), *MENDED]
        named = [partial(judge_named, each) for each in defects]
    drawn: list[Task] = []
    languages = [name == "native" for name in ("native", "python") if name in kinds]
    if languages:
        judge = judge_of(trees[0], kinds, jobs)
        if again is not None:
            slots = [slot for native in languages for slot in survivors(again, native)]
        else:
            orders = [draw(seed, -(-count // len(languages)), native) for native in languages]
            slots = [slot for pair in zip(*orders, strict=True) for slot in pair][:count]
        drawn = [partial(judge_first, judge, slot) for slot in slots]
    report = Report(seed, len(drawn))
    yield report
    for outcome in run_tasks([*named, *drawn], trees, end):
        report.add(outcome)
        yield report


def head() -> str:
    """Return the hash of the commit."""
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="file that gets the outcomes")
    parser.add_argument(
        "--minutes", type=float, default=80, help="after them no mutant begins; default: 80"
    )
    parser.add_argument("--seed", help="text that decides the draw; default: the commit's hash")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="PATH",
        help="try the survivors of this --json file, no others",
    )
    parser.add_argument("--draw", type=int, default=200, metavar="N", help="default: 200")
    parser.add_argument(
        "--only",
        choices=KINDS,
        action="append",
        help="kind of mutants, C++ being native; may be given twice; default: all",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time; default: CPUs"
    )
    parser.add_argument(
        "--trees",
        type=Path,
        default=ROOT / "build" / "mutants",
        metavar="FOLDER",
        help="of the copies of the tree, of one run at a time; default: build/mutants",
    )
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * options.minutes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, hard))
    os.environ.setdefault("MINDSPORE_REC_TESTS", _SETTINGS)
    os.environ.pop("MINDSPORE_REC_NIGHTLY", None)  # its cases prove little more, and take long
    for report in run_mutants(options, end):
        if options.json:  # each time: a run that is ended loses nothing
            options.json.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(report.as_json(), indent=1) + "\n"
            options.json.write_text(text, encoding="utf-8")
    print(report)
    return 1 if report.missed_names() else 0


if __name__ == "__main__":
    sys.exit(main())
