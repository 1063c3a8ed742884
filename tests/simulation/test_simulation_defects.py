# SPDX-License-Identifier: Apache-2.0
"""The simulation finds defects that are put in, those that it once found among them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from mindspore_rec.checkpoint import CheckpointError
from tests.simulation.defects import FOUND, PLANTED, failed_delta_stays, with_defect
from tests.simulation.run import first_finding
from tests.simulation.stream_defects import STREAM_DEFECTS
from tests.simulation.world import World

MOST = 400  # schedules; the slowest takes about 40


@pytest.mark.parametrize(
    ("defect", "settings"),
    [
        pytest.param(*each, id=each[0].__name__)
        for each in {**PLANTED, **FOUND, **STREAM_DEFECTS}.items()
    ],
)
def test_defects_are_found(defect: Callable[[], Any], settings: dict[str, Any]) -> None:
    with with_defect(defect):
        found = first_finding(range(MOST), fixed=settings)
    assert found is not None
    assert found.finding is not None
    assert not found.finding.startswith("AssertionError")  # which would be the simulation's own
    assert found.trace
    print(f"seed {found.seed}: {found.finding}")


def _delta_that_cannot_be_taken_back(step: int) -> World:
    """Return a schedule where the name of a delta is not synced, and cannot be changed back."""
    quiet = {
        "death": 0.0, "steps": 7, "delta_every": 1, "by_clock": False, "by_time": False,
        "delta_by_clock": False, "endless": False, "made_anew": False, "erases": 0, "ask": 0.0,
    }  # fmt: skip
    world = World(1, False, quiet)
    renamed = [False]
    name = f"{step:012d}.delta"

    def fails(operation: str, path: str) -> int:
        if operation == "rename" and path.endswith(f" {name}"):
            renamed[0] = True
        elif renamed[0] and operation == "fsync" and path == str(world.run):
            return errno.EIO
        elif renamed[0] and operation == "rename" and f"/{name} " in path:
            renamed[0] = False
            return errno.EIO
        return 0

    world.disk.fails = fails
    return world


@pytest.mark.parametrize("step", [3, 7])
def test_a_delta_that_cannot_be_taken_back_is_where_the_next_starts(step: int) -> None:
    _delta_that_cannot_be_taken_back(step).live()


def test_two_deltas_of_one_state_are_found() -> None:
    with with_defect(failed_delta_stays), pytest.raises(CheckpointError, match="out of order"):
        _delta_that_cannot_be_taken_back(3).live()
