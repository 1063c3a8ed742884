# SPDX-License-Identifier: Apache-2.0
"""No call waits for a table with the interpreter's lock held, which a Python tier may need."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cache.native_calls import CALLS, public_names, small_table
from tests.support.processes import run_program

NAMES = [*public_names(), "(drop)"]


def test_every_name_is_called() -> None:
    """One that is new needs a line in `native_calls.CALLS`."""
    assert sorted(CALLS) == public_names()


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What the calling process said. One that hangs is gone over: the names after it come next."""
    lines: list[str] = []
    left = NAMES
    while left:
        found = run_program("-m", "tests.cache.gil_script", *left)
        lines += found.stdout.splitlines()
        if found.returncode == 0:
            break
        failed = [line.split()[1] for line in lines if line.startswith("calling ")]
        assert failed, found.stderr
        lines.append(f"failed {failed[-1]} {found.stderr[-2000:]}")
        left = NAMES[NAMES.index(failed[-1]) + 1 :]
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_a_call_beside_one_that_needs_python(said: list[str], name: str) -> None:
    assert f"called {name}" in said, [line for line in said if name in line.split()]


def test_a_call_from_inside_a_call_is_refused() -> None:
    """It would wait for itself."""
    table, tier = small_table("gil inside")
    tier.before_read = lambda: print(table.size())
    with pytest.raises(RuntimeError, match="table 'gil inside': is called from inside one of its"):
        table.lookup(np.arange(0, 40))
    tier.before_read = lambda: None
    with pytest.raises(RuntimeError, match="table 'gil inside': is called from inside one of its"):
        table.export_parts(lambda rows: table.clear())
    assert table.size() == 200
    table.close()
