# SPDX-License-Identifier: Apache-2.0
"""Several workers train on rows, are killed in the middle of an epoch, and go on, also as fewer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.nightly import NIGHTLY
from tests.support.workers import launch

PROGRAM = str(Path(__file__).with_name("workers_program.py"))
NEVER = 999


def losses(root: Path, workers: int, last: int = NEVER) -> list[float]:
    """Return the losses of a training, which are the same on all workers."""
    done = launch("-n", str(workers), PROGRAM, str(root), str(last), cwd=root)
    printed = [line[line.index("[0.") :] for line in done.stdout.splitlines() if "[0." in line]
    assert len(printed) == workers and len(set(printed)) == 1, done.stdout + done.stderr
    made: list[float] = json.loads(printed[0])
    return made


@pytest.mark.skipif(not NIGHTLY, reason="nightly: five launches of several workers")
def test_workers_go_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    numbers = np.arange(48 * 11 + 5)
    clicks = pd.DataFrame({"user": numbers % 13, "item": numbers % 7, "click": numbers % 3 == 0})
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        clicks.to_parquet(tmp_path / name / "clicks.parquet", row_group_size=10)
    whole = losses(tmp_path / "whole", 3)
    assert len(whole) == 24
    assert losses(tmp_path / "killed", 3, last=7) == whole[:7]
    for workers in (1, 2):
        shutil.copytree(tmp_path / "killed", tmp_path / f"by {workers}")
    assert losses(tmp_path / "killed", 3) == whole[6:]
    for workers in (1, 2):
        np.testing.assert_allclose(
            losses(tmp_path / f"by {workers}", workers), whole[6:], rtol=1e-5
        )
