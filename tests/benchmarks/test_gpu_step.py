# SPDX-License-Identifier: Apache-2.0
"""gpu_step.py runs on the host alone: its check, which finds what is off, and its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.processes import NO_MINDSPORE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from gpu.check import relative_error  # noqa: E402  (beside the benchmarks, which run as scripts)
from gpu.core import to_bfloat16, to_float32  # noqa: E402
from gpu.shapes import SHAPES, products  # noqa: E402

sys.path.remove(str(BENCHMARKS))

BLOCK = f"""{NO_MINDSPORE}
import runpy
sys.argv[:] = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script without MindSpore and without the clone in Python's path."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", BLOCK, str(BENCHMARKS / "gpu_step.py"), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, cwd="/"
    )


def test_all_programs_agree_with_themselves(tmp_path):
    out = tmp_path / "check.json"
    done = run("--check", "--devices", "cpu", "cpu", "--check-batch", "1", "40", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())["comparisons"]
    assert all(each["passed"] and each["same_bits"] for each in found)
    assert {each["batch"] for each in found} == {1, 40}
    assert {each["inputs"] for each in found} == {"float32", "bfloat16"}
    for name in SHAPES:
        assert any(each["program"].startswith(name) for each in found)
    assert not any(sum(each["errors"].values()) for each in found)


def test_nothing_to_check_is_a_failure():
    assert run("--check", "--devices", "cpu", "cpu", "--only", "no such program").returncode == 1


def test_figures(tmp_path):
    out = tmp_path / "step.json"
    done = run(
        "--devices", "cpu", "--batch", "48", "--rows", "4000", "--steps", "3", "--warmup", "1",
        "--precision", "float32", "--networks", "wide_deep", "dlrm", "--row-types", "float32",
        "bfloat16", "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())["results"]
    assert [(r["network"], r["rows"]) for r in results] == [
        ("wide_deep", "float32"),
        ("wide_deep", "bfloat16"),
        ("dlrm", "float32"),
        ("dlrm", "bfloat16"),
    ]
    for r in results:
        assert r["samples_per_s"] > 0 and all(ms > 0 for ms in r["parts_ms"].values())
        assert 0.3 < r["loss"] < 1.5
        work = 6 * 48 * sum(a * b for a, b in products(SHAPES[r["network"]]))
        assert r["flop_per_step"] == work
    assert results[1]["bus_bytes"]["to_gpu"] < results[0]["bus_bytes"]["to_gpu"]


@pytest.mark.parametrize(
    ("tested", "error"),
    [([1.0, 2.0], 0.0), ([1.0, 1.0], 0.5), ([1.0, np.nan], np.inf), ([np.inf, 2.0], np.inf)],
)
def test_error_by_the_greatest_magnitude(tested, error):
    reference = np.array([1.0, 2.0], np.float32)
    assert relative_error(np.array(tested, np.float32), reference) == error


def test_bfloat16_is_rounded_to_even():
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -3.0, 0.0], np.float32)
    expected = np.array([1.0, 1.0, 1 + 2**-6, -3.0, 0.0], np.float32)
    np.testing.assert_array_equal(to_float32(to_bfloat16(values)), expected)
