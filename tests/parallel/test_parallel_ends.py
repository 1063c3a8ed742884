# SPDX-License-Identifier: Apache-2.0
"""A job ends well where operators are still to run when the program ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run_workers import launch

SCRIPT = str(Path(__file__).parent / "pending_script.py")


@pytest.mark.parametrize("how", ["finish", "exit"])
def test_operators_that_the_program_did_not_wait_for(how: str, tmp_path: Path) -> None:
    done = launch("-n", "2", SCRIPT, how, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("asked") == 2
    assert "2 workers on this host ended well" in done.stderr
