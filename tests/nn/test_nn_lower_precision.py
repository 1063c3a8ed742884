# SPDX-License-Identifier: Apache-2.0
"""Each public cell in float16 and as MindIR: near the output in float32, or a clear refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.nn.public_cells import MODES
from tests.support.nightly import NIGHTLY
from tests.support.processes import run_program

# Cells whose operators read float32 only.
FLOAT32_ONLY = {"Dice", "HSTU", "HistoryTransformer", "PReLU", "TargetAttention"}


def outcomes_of(way: str, mode: str) -> dict[str, list[Any]]:
    """Return the outcomes of each cell in one way and one mode."""
    done = run_program("-W", "ignore", "-m", "tests.nn.lower_precision_script", way, mode)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "way",
    [
        "float16",
        *(
            pytest.param(level, marks=pytest.mark.skipif(not NIGHTLY, reason="10 s; like float16"))
            for level in ("O2", "O3")
        ),
    ],
)
def test_lower_precision(way: str, mode: str) -> None:
    for name, of_name in outcomes_of(way, mode).items():
        for outcome in of_name:
            if name in FLOAT32_ONLY:
                assert "layers over histories read float32" in str(outcome), name
            else:
                assert isinstance(outcome, float) and outcome < 0.05, (name, outcome)


def test_mindir() -> None:
    for name, of_name in outcomes_of("mindir", "graph").items():
        for outcome in of_name:
            assert isinstance(outcome, float) and outcome < 1e-5, (name, outcome)
