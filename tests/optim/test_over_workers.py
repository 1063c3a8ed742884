# SPDX-License-Identifier: Apache-2.0
"""Networks trained by several workers against one process with the concatenated batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mindspore_rec
from tests.support.nightly import NIGHTLY, nightly
from tests.support.workers import need_mpi

SCRIPT = Path(__file__).parent / "over_workers_script.py"
MPIRUN = Path(sys.prefix) / "bin" / "mpirun"


@pytest.fixture(autouse=True, scope="module")
def mpi() -> None:
    need_mpi()


Saved = dict[str, np.ndarray]


def run(directory: Path, workers: int, *arguments: str) -> list[Saved]:
    """Run the script under mpirun, or alone for 1 worker; return what each worker saved."""
    command = [sys.executable, str(SCRIPT), str(directory), *arguments]
    if workers > 1:
        options = "--allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1"
        command = [str(MPIRUN), *options.split(), "-n", str(workers), *command]
    root = str(Path(mindspore_rec.__file__).parents[1])
    environment = os.environ | {"GLOG_v": "3", "MINDSPORE_REC_NUM_THREADS": "1", "PYTHONPATH": root}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return [dict(np.load(directory / f"{r}.npz")) for r in range(workers)]


def gathered(saved: list[Saved], table: str) -> Saved:
    """Return the rows of all workers by key; each key once, but of a replicated table."""
    fields = {
        field: np.concatenate([one[f"table/{table}/{field}"] for one in saved])
        for field in ("keys", "values", "states", "counts")
    }
    if table == "group.replicated":
        for one in saved:
            for field in fields:
                name = f"table/{table}/{field}"
                np.testing.assert_array_equal(one[name], saved[0][name])
        return {field: saved[0][f"table/{table}/{field}"] for field in fields}
    assert len(np.unique(fields["keys"])) == len(fields["keys"])
    order = np.argsort(fields["keys"])
    return {field: values[order] for field, values in fields.items()}


@pytest.mark.parametrize(
    ("workers", "mode", "life"),
    [
        (3, "pynative", "combined"),
        (2, "graph", "bfloat16"),
        *nightly((2, "pynative", "adagrad"), (3, "graph", "combined"), (2, "graph", "adagrad")),
    ],
)
def test_workers_train_what_one_process_does(
    tmp_path: Path, workers: int, mode: str, life: str
) -> None:
    many = run(tmp_path / "many", workers, mode, life)
    (one,) = run(tmp_path / "one", 1, mode, life, str(workers))
    close: dict[str, Any] = (
        {"rtol": 2e-2, "atol": 2e-3} if life == "bfloat16" else {"rtol": 1e-5, "atol": 2e-6}
    )
    for saved in many:
        for name in one:
            if name.startswith("dense/"):
                np.testing.assert_array_equal(saved[name], many[0][name], err_msg=name)
                np.testing.assert_allclose(saved[name], one[name], **close, err_msg=name)
        np.testing.assert_allclose(saved["evaluated"], one["evaluated"], **close)
    tables = {name.split("/")[1] for name in one if name.startswith("table/")}
    assert len(tables) == 7
    for table in tables:
        rows = gathered(many, table)
        np.testing.assert_array_equal(rows["keys"], one[f"table/{table}/keys"], err_msg=table)
        np.testing.assert_array_equal(rows["counts"], one[f"table/{table}/counts"], err_msg=table)
        for field in ("values", "states"):
            expected = one[f"table/{table}/{field}"]
            np.testing.assert_allclose(rows[field], expected, **close, err_msg=table)
    on_owner = [len(saved["table/bags/keys"]) for saved in many]
    assert [n > 0 for n in on_owner] == [rank == 1 for rank in range(workers)]
    for rank in range(workers):
        errors = json.loads((tmp_path / "many" / f"{rank}.json").read_text())
        assert "id 12 at position 0 is outside the vocabulary [0, 10)" in errors["error"]
        assert ("worker 1: " in errors["error"]) == (rank != 1)
        alone = [1 - 0.5 * (r + 1) / workers for r in range(workers)]
        together = 1 - 0.5 * sum(r + 1 for r in range(workers)) / workers
        np.testing.assert_allclose(errors["by_handle"], [together, *alone], rtol=1e-6)
        if mode == "graph":
            assert errors["differ"].startswith("200: ")
            assert "dense.bias' of worker 1 differs from worker 0's" in errors["differ"]


@pytest.mark.skipif(not NIGHTLY, reason="the networks of tests/parallel repeat their runs")
def test_repeated_runs_give_equal_bits(tmp_path: Path) -> None:
    first = run(tmp_path / "first", 2, "graph", "adagrad")
    again = run(tmp_path / "again", 2, "graph", "adagrad")
    for one, other in zip(first, again, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
