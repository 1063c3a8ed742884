# SPDX-License-Identifier: Apache-2.0
"""Several workers that divide rows with histories train as one process does."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.support.nightly import NIGHTLY
from tests.support.workers import launch

SCRIPT = Path(__file__).with_name("history_script.py")


@pytest.mark.skipif(not NIGHTLY, reason="a case that MINDSPORE_REC_NIGHTLY=1 runs")
def test_two_workers_train_as_one_process(tmp_path: Path) -> None:
    for workers in (1, 2):
        ended = launch("-n", str(workers), str(SCRIPT), str(tmp_path), cwd=tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    files = [tmp_path / f"{name}.pickle" for name in ("1.0", "2.0", "2.1")]
    alone, first, second = (pickle.loads(file.read_bytes()) for file in files)
    assert len(alone["losses"]) == 8
    assert first["losses"] == second["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    for name, rows in alone["rows"].items():
        assert first["rows"][name] + second["rows"][name] == rows
