# SPDX-License-Identifier: Apache-2.0
"""Which places mutants change, how they are drawn, and what a report says of those that survive."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.defects.build import Tree
from tests.defects.entry import ROOT, Defect
from tests.defects.test_defects import exists
from tests.defects.tools import Finding
from tests.mutants import judge as judges
from tests.mutants.clean import CleanRuns, TestRun
from tests.mutants.cpp_places import cpp_places
from tests.mutants.draw import ROOMS, draw, room_of, survivors
from tests.mutants.equivalents import ACCEPTED, Equivalent, Equivalents
from tests.mutants.judge import Judge
from tests.mutants.lines_run import FOLDER
from tests.mutants.mended import MENDED
from tests.mutants.mutant import Mutant
from tests.mutants.nearest import nearest
from tests.mutants.python_places import python_places
from tests.mutants.report import Report

CPP = r"""
#include <a/b<1>.h>
#if 1 < 2
int left_out = 1 + 2;
#endif
// 1 < 2 && !x; Call(3);
/* 4 + 5
   return true; */
template <typename T, int N = 7>
std::vector<int64_t> f(const T& x, T&& y, T* z) {
  static_assert(sizeof(T) == 8 && true, "1 + 1");
  const char* text = "a < b && 9" R"(1 + 2 "quoted" < 3)" "\"+ 1";
  const char one = '+';
  if (!x && y < 10'000 - 3) throw std::out_of_range("must be < 3, got " + std::to_string(x + 1));
  rows_->Erase(z[4], -x);
  out.reserve(8);
  for (size_t i = 0; i < out.size(); ++i) Take<3>(std::min(i, x));
  return true;
}
"""

PYTHON = '''
"""1 < 2 and not 3."""
from __future__ import annotations
SIZE: int | None = 4  # 5 < 6
def f(a: int | None = None, *, b: Literal[7] = 8) -> dict[str, 9]:
    """return 10"""
    logger.warning("of %d", a + 11)
    if a is not None and b <= (a - 12):  # or not
        raise ValueError(f"{a + 13}" + str(14))
    rows.clear()
    text = "a" + name
    return {f"{b + 15}": not a}
'''


def changes(places: Iterable[Mutant], text: str) -> list[tuple[str, str]]:
    """Return what each mutant replaces, and by what."""
    return [(text[each.start : each.end], each.new) for each in places]


def test_places_of_cpp() -> None:
    assert changes(cpp_places("a.cc", CPP), CPP) == [
        ("!", ""), ("&&", "||"), ("<", "<="), ("-", "+"), ("3", "4"),
        ("rows_->Erase(z[4], -x);", ";"), ("4", "5"),
        ("0", "1"), ("<", "<="), ("min", "max"),
        ("true", "false"),
    ]  # fmt: skip


def test_places_of_python() -> None:
    assert changes(python_places("a.py", PYTHON), PYTHON) == [
        ("4", "5"), ("8", "9"),
        ("is not", "is"), ("and", "or"), ("<=", "<"), ("-", "+"), ("12", "13"),
        ("rows.clear()", "pass"), ("not ", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("folder", [f for room in ROOMS for f in room.folders if "csrc" not in f])
def test_a_mutant_of_python_is_python(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for mutant in python_places(path.name, text)[::10]:
            changed = ast.parse(mutant.of(text))
            assert ast.dump(changed) != ast.dump(ast.parse(text)), mutant.lines(text)


def test_lines_name_a_place_by_its_text() -> None:
    text = "a\nif x:\n    b(c,\n      d)\ne\n"
    start = text.index("b(")
    mutant = Mutant("f.py", start, text.index(")") + 1, "pass")
    assert mutant.of(text) == "a\nif x:\n    pass\ne\n"
    assert mutant.lines(text) == (3, "b(c, d)", "pass")


@pytest.mark.parametrize("native", [False, True])
def test_a_draw_of_one_hash_is_one_draw(native: bool) -> None:
    first, again, other = (
        [next(slot) for slot in draw(seed, 20, native)] for seed in ("12ab", "12ab", "12ac")
    )
    assert first == again and first != other
    assert len(set(first)) == 20 and all(each.is_native == native for each in first)
    # Where a place has taken another mutant, the other places have theirs.
    slots = draw("12ab", 20, native)
    assert next(slots[0]) != next(slots[0])
    assert [next(slot) for slot in slots[1:]] == first[1:]


def test_each_room_is_drawn_from() -> None:
    drawn = [next(slot) for native in (False, True) for slot in draw("1", 100, native)]
    assert {room_of(each.file).name for each in drawn} == {room.name for room in ROOMS}


# ---- the nearest tests


def test_each_room_has_its_tests() -> None:
    paths = [
        each for room in ROOMS for each in (*room.tests, *room.native_tests, *room.outer_tests)
    ]
    assert [each for each in paths if not (ROOT / each).exists()] == []


CODE = """\
LIMIT = 3
def take(
    most=4,
):
    if most > LIMIT and (
        most < 10
    ):
        print(most)
    return most
def give(
):
    return 5 + 6
"""
RUNS = {
    f"t.py::{name}": TestRun(seconds, {"mindspore_rec/common/stream/a.py": lines})
    for name, seconds, lines in [
        ("long", 9, [5, 6, 8]), ("short", 1, [5, 9]), ("shorter", 0.5, [9]), ("other", 2, [12]),
        ("elsewhere", 0.1, []), ("shorter[2]", 0.6, [9]),
    ]
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("10", ["short", "long"]),  # by its statement, of which Python names any line
        ("print(most)", ["long"]),
        ("4", ["shorter", "short", "long", "shorter[2]"]),  # a default: by its function
        ("3", ["shorter", "short", "other", "long", "shorter[2]"]),
        ("+", ["other"]),
    ],
)
def test_the_nearest_tests_run_the_changed_line(changed: str, chosen: list[str]) -> None:
    start = CODE.index(changed)
    mutant = Mutant("mindspore_rec/common/stream/a.py", start, start + len(changed), "x")
    names = [test.partition("::")[2] for test in nearest(mutant, CODE, RUNS, 60)]
    assert names == chosen
    assert len(nearest(mutant, CODE, RUNS, 0)) == 1


def test_a_statement_that_no_test_runs_is_met_by_tests_of_its_function() -> None:
    runs = {"t.py::other": RUNS["t.py::other"], "t.py::shorter": RUNS["t.py::shorter"]}
    start = CODE.index("print")
    mutant = Mutant("mindspore_rec/common/stream/a.py", start, start + len("print(most)"), "pass")
    assert nearest(mutant, CODE, runs, 60) == ["t.py::shorter"]


def test_a_clean_run_knows_the_lines_that_tests_run(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree", 1)
    clean = CleanRuns(tree.root, tmp_path / "clean.json")
    runs = clean.of_files([TESTS], 1)
    mutant = idle_too_soon()
    line, _, _ = mutant.lines((ROOT / FILE).read_text(encoding="utf-8"))
    near = [test for test, run in runs.items() if line in run.of(FILE)]
    assert near and set(near) < set(runs)
    assert runs == CleanRuns(tree.root, tmp_path / "clean.json").of_files([TESTS], 1)


THREADS = """
from threading import Event, Thread
from mindspore_rec.common.stream.channel_log import headers_of

def later():
    may.wait()
    headers_of("sender", 1, 0)

may, thread = Event(), Thread(target=later)

def test_one():
    thread.start()

def test_two():
    may.set()
    thread.join()
"""


def test_a_thread_runs_lines_for_the_test_that_began_it(tmp_path: Path) -> None:
    (tmp_path / "test_threads.py").write_text(THREADS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.lines_run", str(tmp_path)]
    environment = {**os.environ, FOLDER: str(tmp_path)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    (found,) = tmp_path.glob("*.json")
    tests = json.loads(found.read_text(encoding="utf-8"))
    one, two = (tests[f"test_threads.py::{name}"]["lines"] for name in ("test_one", "test_two"))
    assert list(one) == ["mindspore_rec/common/stream/channel_log.py"] and not two


# ---- survivors

FILE = "mindspore_rec/common/stream/patience.py"
TESTS = "tests/stream/test_stream_decisions.py"
TEST = f"{TESTS}::test_the_tests_of_it"


def idle_too_soon() -> Mutant:
    """Return a mutant that the tests of streams find."""
    text = (ROOT / FILE).read_text(encoding="utf-8")
    start = text.index("looked - self._last_row") + len("looked ")
    return Mutant(FILE, start, start + 1, "+")


class NoTree:
    """A tree in which nothing is changed."""

    root = ROOT

    @contextmanager
    def with_edits(self, edits: Any, needs: Any) -> Iterator[None]:
        yield


def outcome_of(finding: Finding | None, equivalents: Equivalents, monkeypatch: Any) -> Report:
    """Return the report of a mutant whose tests say what is given; None: they must not run."""

    def run_tool(tool: Any, root: Path) -> Finding:
        assert finding is not None and TEST in tool.command(root)
        return finding

    monkeypatch.setattr(judges, "run_tool", run_tool)
    tree: Any = NoTree()
    judge = Judge({}, {TEST: TestRun(1.0, {})}, equivalents)
    return Report("1", 1, [], [judge.judge(idle_too_soon(), tree)])


def equivalents_of(path: Path, *entries: dict[str, Any]) -> Equivalents:
    path.write_text(json.dumps(entries), encoding="utf-8")
    return Equivalents(path)


def test_a_survivor_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = equivalents_of(tmp_path / "none.json")
    report = outcome_of(Finding("not found", 1.0, ""), nothing, monkeypatch)
    (survivor,) = report.as_json()["survivors"]
    assert report.as_json()["share_killed"] == 0.0
    assert report.as_json()["rooms"]["stream"]["survived"] == 1
    text = (ROOT / FILE).read_text(encoding="utf-8").splitlines()
    assert text[survivor["line"] - 1].strip() == survivor["old"]
    assert "looked + self._last_row" in survivor["new"] and survivor["tests"] == [f"1 of {TESTS}"]
    assert f"survived: {FILE}:{survivor['line']}" in str(report)
    # With a sentence why nobody can notice, it is no survivor, and no test runs.
    said = {key: survivor[key] for key in ("file", "old", "new")}
    accepted = equivalents_of(tmp_path / "one.json", {**said, "why": "time stands still"})
    report = outcome_of(None, accepted, monkeypatch)
    assert report.as_json()["survivors"] == [] and "survived:" not in str(report)
    assert report.as_json()["rooms"]["stream"]["equivalent"] == 1
    assert report.as_json()["share_killed"] is None


def test_survivors_of_a_report_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = equivalents_of(tmp_path / "none.json")
    for number, found in enumerate(("not found", "found")):
        report = outcome_of(Finding(found, 1.0, ""), nothing, monkeypatch)
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(report.as_json()), encoding="utf-8")
        again = [next(slot) for slot in survivors(path, native=False)]
        assert again == ([idle_too_soon()] if found == "not found" else [])
        assert survivors(path, native=True) == []


@pytest.mark.parametrize("outcome", ["found", "hangs", "error"])
def test_a_mutant_is_killed_by_any_end_but_success(
    outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = equivalents_of(tmp_path / "none.json")
    report = outcome_of(Finding(outcome, 1.0, "said"), nothing, monkeypatch)
    assert report.as_json()["share_killed"] == 1.0 and report.as_json()["survivors"] == []
    assert report.drawn[0].said == "said"


def test_a_mutant_is_put_in_and_taken_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree", 1)
    before = (tree.root / FILE).read_bytes()
    nothing = equivalents_of(tmp_path / "none.json")
    verdict = Judge({}, {TESTS: TestRun(1.0, {})}, nothing).judge(idle_too_soon(), tree)
    assert verdict.outcome == "killed", verdict
    assert f"FAILED {TESTS}" in verdict.said
    assert (tree.root / FILE).read_bytes() == before == (ROOT / FILE).read_bytes()


def test_accepted_mutants_are_mutants_of_the_code_as_it_is() -> None:
    for entry in Equivalents(ACCEPTED).all:
        text = (ROOT / entry.file).read_text(encoding="utf-8")
        places = cpp_places if not entry.file.endswith(".py") else python_places
        found = any(entry.is_of(each.lines(text), text) for each in places(entry.file, text))
        assert found, f"equivalents.json: {entry} is no mutant any more"
        assert len(entry.why.split()) > 4


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.cc", "void A::One() {\n  Drop();\n}\n\nvoid A::Two(int of) {\n  Drop();\n}\n"),
        (
            "a.py",
            "class A:\n    def One(self):\n        Drop()\n\n    def Two(self):\n        Drop()\n",
        ),
    ],
)
def test_an_equivalent_of_one_function_is_none_of_another(file: str, text: str) -> None:
    places = cpp_places if file == "a.cc" else python_places
    one, two = (each.lines(text) for each in places(file, text))
    assert one[1:] == two[1:]
    head = "A::" if file == "a.cc" else "def "
    for within, expected in (
        ("", (True, True)),
        (f"{head}One", (True, False)),
        ("T", (False, False)),
    ):
        entry = Equivalent(file, one.old, one.new, "", within)
        assert (entry.is_of(one, text), entry.is_of(two, text)) == expected


# ---- named ones


@pytest.mark.parametrize("defect", MENDED, ids=lambda defect: str(defect.number))
def test_a_mended_defect_can_be_put_back(defect: Defect) -> None:
    assert defect.number > 22 and exists(defect.regression)
    for edit in defect.edits:
        assert edit.applied(ROOT) != (ROOT / edit.file).read_text(encoding="utf-8")
