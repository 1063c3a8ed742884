# SPDX-License-Identifier: Apache-2.0
"""Each public cell computes and trains a batch without rows, after a batch with rows."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from mindspore import nn as ms_nn

from mindspore_rec import nn as cells
from tests.support.processes import run_program

# FusedGraph and FusedSequential run layers that are in the list.
OTHERS = {"FusedGraph", "FusedLayer", "FusedSequential"}


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_empty_batches(mode: str) -> None:
    done = run_program("-W", "ignore", "-m", "tests.nn.empty_batches_script", mode)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    public = {
        name
        for name in vars(cells)["__all__"]
        if inspect.isclass(getattr(cells, name)) and issubclass(getattr(cells, name), ms_nn.Cell)
    }
    assert set(outcomes) == public - OTHERS
    for name, of_name in outcomes.items():
        for evaluated, evaluated_empty, trained, trained_empty in of_name:
            assert evaluated == trained and isinstance(evaluated, list), name
            assert evaluated_empty == trained_empty, name
            if name != "ToPadded":  # its lists are empty, and a block has a row per list
                assert evaluated_empty == [0, *evaluated[1:]] or evaluated == [], name
