# SPDX-License-Identifier: Apache-2.0
"""Trainings of two processes against one process with the same script, under the launcher."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec.common.parallel.launcher import ALONE

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "loop_script.py"
SAME = ["plain", "summed", "validated", "early", "cut", "fitted", "asked", "signalled"]
TOGETHER = [*SAME, "uneven", "streamed"]

pytestmark = pytest.mark.skipif(
    not (ROOT / "mindspore_rec" / "_mpi.so").exists(), reason="built without Open MPI"
)


def run(workers: int, *names: str) -> subprocess.CompletedProcess[str]:
    """Run trainings with so many workers."""
    command = [sys.executable, str(SCRIPT), *names]
    if workers > 1:
        launch = ["-m", "mindspore_rec.launch", "-n", str(workers), str(SCRIPT), *names]
        command = [sys.executable, *launch]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3", "OMP_NUM_THREADS": "1"}
    environment.pop(ALONE, None)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=500, check=False
    )


def results(made: subprocess.CompletedProcess[str]) -> dict[int, dict[str, Any]]:
    """Return what each worker printed."""
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-4000:]
    found = dict(json.loads(text) for text in re.findall(r"RESULT (.*)", made.stdout))
    return {int(rank): value for rank, value in found.items()}


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    return results(run(1, *TOGETHER, "nan"))[0]


@pytest.fixture(scope="module")
def two() -> dict[int, dict[str, Any]]:
    return results(run(2, *TOGETHER, "nan", "norms", "drops"))


def close(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    """Compare numbers in lists and dicts."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            close(found[name], value, tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for each, value in zip(found, expected, strict=True):
            close(each, value, tolerance)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        assert found == expected


@pytest.mark.parametrize("name", SAME)
def test_two_workers_train_what_one_trains(name: str, one: dict, two: dict) -> None:
    """Losses, metrics, steps, reasons to stop and dense parameters, on both workers."""
    for rank in (0, 1):
        for figure, value in one[name].items():
            if figure not in ("rows", "waits"):
                close(two[rank][name][figure], value)
    rows = zip(two[0][name]["rows"], two[1][name]["rows"], strict=True)
    assert [mine + other for mine, other in rows] == one[name]["rows"]
    # All workers hold equal bits, and callbacks see equal figures.
    for figure, value in two[0][name].items():
        assert figure == "rows" or two[1][name][figure] == value


def test_ends_are_agreed(one: dict, two: dict) -> None:
    for rank in (0, 1):
        found = two[rank]
        assert found["asked"]["steps"] == found["signalled"]["steps"] == 3
        assert found["signalled"]["interrupted"] and not found["asked"]["interrupted"]
        assert "auc no better" in found["early"]["reason"]
        assert found["plain"]["waits"] == 2
        assert (found["cut"]["path"], found["cut"]["steps"]) == ([[3, 1.0]], 9)
    assert one["plain"]["waits"] == 0


def test_a_worker_that_ran_out_goes_on_without_rows(two: dict) -> None:
    assert [two[rank]["uneven"]["rows"] for rank in (0, 1)] == [[4, 0], [4, 4]]
    assert two[0]["uneven"]["samples"] == two[1]["uneven"]["samples"] == 12
    assert two[0]["uneven"]["weights"] == two[1]["uneven"]["weights"]


def test_a_stream_is_divided_by_partition(one: dict, two: dict) -> None:
    """Its six batches are other rows than those of one process; each is trained once."""
    assert [two[rank]["streamed"]["partitions"] for rank in (0, 1)] == [[0, 2], [1, 3]]
    assert two[0]["streamed"]["samples"] == one["streamed"]["samples"] == 72
    assert two[0]["streamed"]["reason"] == two[1]["streamed"]["reason"] == "6 batches"


def test_nan_on_one_worker_is_raised_on_all(two: dict) -> None:
    for rank in (0, 1):
        assert "the loss is nan at step 3 of worker 1" in two[rank]["nan"]["error"]


def test_moving_statistics_of_mindspores_normalization_are_those_of_all_rows(two: dict) -> None:
    for name in ("mean", "variance"):
        assert two[0]["norms"][name] == two[1]["norms"][name]
    mean, variance = np.zeros(2), np.ones(2)
    first, other = (two[rank]["norms"]["numbers"] for rank in (0, 1))
    for step, mine in enumerate(map(np.array, first)):
        # The idle worker's rows count for nothing, nor does the variance of a single row.
        parts = [mine, np.array(other[step])] if step < len(other) else [mine]
        mean = 0.9 * mean + 0.1 * np.concatenate(parts).mean(0)
        wide = [part for part in parts if len(part) > 1]
        found = sum(len(part) * part.var(0, ddof=1) for part in wide) / sum(map(len, wide))
        variance = 0.9 * variance + 0.1 * found
    close(two[0]["norms"]["mean"], mean.tolist())
    close(two[0]["norms"]["variance"], variance.tolist())
    norm, count = two[0]["norms"]["said"]
    assert "'norm' is MindSpore's normalization" in norm and "MLP(batch_norm=True)" in norm
    assert "parameter 'count', which has no gradient, differs between workers" in count
    assert two[1]["norms"]["said"] == []


def test_mindspores_dropout_is_said_and_drawn_apart(two: dict) -> None:
    """With one seed on all workers, masks of different rows would be equal."""
    (said,) = two[0]["drops"]["said"]
    assert said.startswith("'alike', of type Dropout2d, draws random numbers on each worker")
    assert "and the same numbers on each" in said and "MLP(dropout=...)" in said
    assert two[1]["drops"]["said"] == []
    assert two[1]["drops"]["seed"] == two[0]["drops"]["seed"] + 1
    for mine, others in zip(*(two[rank]["drops"]["masks"] for rank in (0, 1)), strict=True):
        assert set(np.ravel(mine)) == set(np.ravel(others)) == {0.0, 2.0}
        assert mine != others


def test_a_dropout_whose_layer_is_not_one_operator_is_said(two: dict) -> None:
    (_, said), (other,) = (two[rank]["drops"]["hooked"] for rank in (0, 1))
    assert "'2.layers.2' drops units by masks that all workers begin with alike" in said
    assert "runs as MindSpore's layers" in other and "workers" not in other


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("finite", "the label of batch 2 .* must have finite numbers, got nan in row"),
        ("none", "ValueError: train_dataset gave worker 1 of 2 no batch"),
        ("differing", "ValueError: train_dataset must be the same on all workers"),
        ("apart", "dim of table 'apart' must be the same on all workers: got 5 on worker 1"),
        ("settings", "learning_rate of the optimizer must be the same .* it is 0.2 on worker 1"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_all_end(name: str, sentence: str) -> None:
    made = run(2, name)
    assert made.returncode != 0
    output = made.stdout + made.stderr
    assert re.search(sentence, output), output[-4000:]
    assert output.count("Traceback (most recent call last)") == 1, output[-6000:]
