# SPDX-License-Identifier: Apache-2.0
"""MPI does not end under what other threads still exchange when the program ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.workers import launch

SCRIPT = str(Path(__file__).parent / "pending_script.py")


@pytest.mark.parametrize("how", ["finish", "exit"])
def test_operators_that_the_program_did_not_wait_for(how: str, tmp_path: Path) -> None:
    done = launch("-n", "2", SCRIPT, how, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ended\n") == 2
    assert "2 workers on this host ended well" in done.stderr


def test_a_thread_that_goes_on(tmp_path: Path) -> None:
    """Its exchange ends with an error on the worker that leaves first, or the job does."""
    done = launch("-n", "2", SCRIPT, "thread", cwd=tmp_path)
    printed = done.stdout + done.stderr
    assert "NULL communicator" not in printed and "MPI_FINALIZE" not in printed, printed
    assert done.returncode == 0 or re.search(r"worker [01] has ended", printed), printed
