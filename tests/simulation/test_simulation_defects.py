# SPDX-License-Identifier: Apache-2.0
"""The simulation finds defects that are put in, those that it once found among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.defects import FOUND, PLANTED, with_defect
from tests.simulation.run import first_finding

MOST = 400  # schedules; the slowest takes about 40


@pytest.mark.parametrize(
    ("defect", "settings"),
    [pytest.param(*each, id=each[0].__name__) for each in {**PLANTED, **FOUND}.items()],
)
def test_defects_are_found(defect: Callable[[], Any], settings: dict[str, Any]) -> None:
    with with_defect(defect):
        found = first_finding(range(MOST), fixed=settings)
    assert found is not None
    assert found.finding is not None
    assert not found.finding.startswith("AssertionError")  # which would be the simulation's own
    assert found.trace
