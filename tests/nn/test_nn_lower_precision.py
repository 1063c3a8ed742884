# SPDX-License-Identifier: Apache-2.0
"""Each public cell in float16 and as MindIR: near the output in float32, or a clear refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.nn.lower_precision_script import FLOAT32_ONLY
from tests.nn.public_cells import MODES
from tests.support.nightly import NIGHTLY
from tests.support.processes import run_program

NIGHTLY_ONLY = pytest.mark.skipif(not NIGHTLY, reason="10 s; like another case")
# Cells that MindSpore's level O1 cannot copy: its rewriter does not find names of the cell's
# module, or does not find the source text of its own functions.
NOT_COPIED = {
    *("BPRLoss", "DotInteraction", "EmbeddingBag", "MMoE", "SampledSoftmaxLoss", "TableLookup"),
    *("ToPadded", "ToValues"),
}


OF_TABLES = {
    "EmbeddingBag",
    "EmbeddingLookup",
    "GroupedEmbedding",
    "HashEmbeddingLookup",
    "TableLookup",
}


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
        pytest.param("O2", marks=NIGHTLY_ONLY),
        pytest.param("O3", marks=NIGHTLY_ONLY),
    ],
)
def test_lower_precision(way: str, mode: str) -> None:
    for name, of_name in outcomes_of(way, mode).items():
        for outcome in of_name:
            if name in FLOAT32_ONLY:
                assert "layers over histories read float32" in str(outcome), name
            else:
                assert isinstance(outcome, float) and outcome < 0.05, (name, outcome)


@pytest.mark.parametrize("mode", ["pynative", pytest.param("graph", marks=NIGHTLY_ONLY)])
def test_level_o1(mode: str) -> None:
    for name, of_name in outcomes_of("O1", mode).items():
        for outcome in of_name:
            near = isinstance(outcome, float) and outcome < 0.05
            assert near or name in NOT_COPIED, (name, outcome)


def test_mindir() -> None:
    for name, of_name in outcomes_of("mindir", "graph").items():
        for outcome in of_name:
            refused = "mindspore.export writes no rows of tables" in str(outcome)
            near = isinstance(outcome, float) and outcome < 1e-5
            assert refused if name in OF_TABLES else near, (name, outcome)
