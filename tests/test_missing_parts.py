# SPDX-License-Identifier: Apache-2.0
"""What is skipped is said at the end of a run, and is a failure where all parts are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT

TESTS = """
import pytest
from tests.support.missing import missing, need_package

def test_broker(): missing("kafka", "mvn is not in the path")
def test_other_broker(): missing("kafka", "mvn is not in the path")
def test_package(): need_package("no_such_package", "an extra")
def test_nature(): pytest.skip("not on this CPU")
def test_there(): assert need_package("json", "of Python").dumps(1) == "1"
"""


def run(directory: Path, **environment: str) -> str:
    (directory / "test_parts.py").write_text(TESTS)
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    kept = {name: value for name, value in kept.items() if not name.startswith("MINDSPORE_REC_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", ".", "."],
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout


def test_what_was_skipped_and_why(tmp_path):
    printed = run(tmp_path)
    lines = printed[printed.index("= skipped =") :].splitlines()[1:]
    assert lines[0] == "2 kafka is missing: mvn is not in the path"
    assert lines[1] == "1 no_such_package is missing: an extra"
    assert lines[2] == "1 not on this CPU"
    assert "1 passed, 4 skipped" in lines[-1]


@pytest.mark.parametrize(
    ("environment", "outcome"),
    [
        ({"MINDSPORE_REC_REQUIRE_ALL": "1"}, "3 failed, 1 passed, 1 skipped"),
        ({"CI": "true"}, "3 failed, 1 passed, 1 skipped"),
        (
            {"MINDSPORE_REC_REQUIRE_ALL": "1", "MINDSPORE_REC_WITHOUT": "kafka,torch"},
            "1 failed, 1 passed, 3 skipped",
        ),
    ],
)
def test_a_missing_part_fails_where_all_are_asked_for(tmp_path, environment, outcome):
    printed = run(tmp_path, **environment)
    assert outcome in printed
    assert "MINDSPORE_REC_REQUIRE_ALL asks for no_such_package: an extra" in printed
