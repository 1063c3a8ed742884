# SPDX-License-Identifier: Apache-2.0
"""Rows of all workers are read and changed from any of them, outside of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workers import launch

SCRIPT = Path(__file__).parent / "rows_script.py"


@pytest.mark.parametrize("workers", [2, 3])
def test_rows_of_all_workers_from_any(workers, tmp_path):
    done = launch("-n", str(workers), str(SCRIPT), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rows are right") == workers
