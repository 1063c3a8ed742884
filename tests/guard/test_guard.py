# SPDX-License-Identifier: Apache-2.0
"""The guard finds nothing between two recordings of one tree, and says what it finds elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.guard import processes, zoo
from tests.guard.comparison import compare, machine_lines
from tests.guard.processes import record
from tests.guard.runs import RUNS, Run
from tests.support.processes import ROOT, run_python


def guard(*arguments: object) -> str:
    return run_python(str(ROOT / "tools" / "guard.py"), *map(str, arguments), cwd=ROOT)


def recorded(**digests: str) -> dict[str, Any]:
    return {"digests": digests, "missing": None, "failed": None}


def without(word: str) -> dict[str, Any]:
    return {**recorded(), word: "no server"}


def test_two_recordings_of_a_tree_are_the_same(tmp_path: Path) -> None:
    out = tmp_path / "before.json"
    guard("--only", "count_capacity", "--json", out)
    before = json.loads(out.read_text())
    digests = before["runs"]["count_capacity"]["digests"]
    assert {"losses", "weights", "optimizer", "predictions", "guard.deep table"} <= digests.keys()
    assert before["machine"]["MindSpore"]
    said = guard("--only", "count_capacity", "--compare", out)
    assert said == f"count_capacity: same ({len(digests)} digests)\n"


def test_what_differs_is_named() -> None:
    before = {"ssd": recorded(weights="1", predictions="2"), "redis": recorded(weights="3")}
    now = {"ssd": recorded(weights="1", predictions="4"), "redis": recorded(weights="3")}
    assert compare(before, before)[1]
    assert compare(before, now) == (
        ["ssd: differs in predictions (1 of 2)", "redis: same (1 digests)"],
        False,
    )


@pytest.mark.parametrize(
    ("before", "now", "line", "same"),
    [
        (without("missing"), without("missing"), "not run: no server", True),
        (recorded(a="1"), without("missing"), "not run in the present recording: no server", False),
        (without("failed"), recorded(a="1"), "failed in the earlier recording: no server", False),
        (recorded(a="1"), None, "only in the earlier recording", False),
        (recorded(a="1"), recorded(), "differs in a (1 of 1)", False),
    ],
)
def test_a_run_without_digests_is_no_equal_run(before, now, line: str, same: bool) -> None:
    one, other = {"redis": before}, {} if now is None else {"redis": now}
    assert compare(one, other) == ([f"redis: {line}"], same)


def test_machines_that_differ_are_named() -> None:
    found = list(machine_lines({"NumPy": "1.26", "cpus": 2}, {"NumPy": "1.25", "cpus": 2}))
    assert found == ["machine: NumPy was 1.26, is 1.25"]


def test_a_run_that_ends_with_an_error_says_which() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "RUNS", {"no_such_run": RUNS["float32"]})
        failed = record("no_such_run").failed
    assert failed is not None and "KeyError: 'no_such_run'" in failed


def test_a_run_without_its_program_is_missing() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "RUNS", {"a": Run(RUNS["redis"].record, needs="no-such-server")})
        assert record("a").missing == "no-such-server is not installed"


def test_each_model_of_the_zoo_has_a_run() -> None:
    models = {path.parent.name for path in (ROOT / "models").glob("*/configs")}
    assert set(zoo.MODELS) | zoo.OVER_HISTORIES == models
