# SPDX-License-Identifier: Apache-2.0
"""Models of the zoo on several workers: the evaluation is divided, its numbers are not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.processes import run_python
from tests.support.workers import launch

SCRIPT = Path(__file__).with_name("evaluation_script.py")


def results(printed: str) -> dict[int, dict[str, Any]]:
    return dict(json.loads(text) for text in re.findall(r"RESULT (.*)", printed))


def test_workers_divide_the_evaluation_and_have_its_numbers(tmp_path):
    done = launch("-n", "2", str(SCRIPT), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (found for _, found in sorted(results(done.stdout).items()))
    assert (first["asked"], second["asked"]) == ([700, 300], [700, 300])
    for found in (first, second):  # bit by bit what a worker that predicts all batches has
        assert found["same_bits"] and found["same_labels"]
    assert first["metrics"] == second["metrics"]
    assert first["curve"] == second["curve"]
    (one,) = results(run_python(str(SCRIPT), cwd=tmp_path)).values()
    assert one["asked"] == [700, 700, 300]
    assert one["metrics"].keys() == first["metrics"].keys() >= {"auc", "gauc", "auc.few"}
    for name, value in one["metrics"].items():
        np.testing.assert_allclose(first["metrics"][name], value, rtol=1e-5, err_msg=name)
