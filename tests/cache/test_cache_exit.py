# SPDX-License-Identifier: Apache-2.0
"""Python ends while a native thread is in a tier that is a Python object."""

from __future__ import annotations

import pytest

from tests.support.processes import run_program

CASES = ("slow", "many", "dropped", "flushed")


@pytest.mark.parametrize("case", CASES)
def test_no_native_thread_is_in_python_when_it_ends(case: str) -> None:
    """Each write that has begun ends before Python does, and none begins afterwards."""
    found = run_program("-m", "tests.cache.exit_script", case, seconds=60)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    said = found.stdout.splitlines()
    assert said[-2:] == ["closed", "end"], said
    assert said.count("write") == said.count("written") >= 1
    assert case != "flushed" or said.count("write") > 20
