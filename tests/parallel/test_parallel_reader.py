# SPDX-License-Identifier: Apache-2.0
"""A restart in the middle of a pass over a file: the same bits, and on fewer workers each row."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mindspore_rec import RecModel
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.data import Rows, Sample, read
from mindspore_rec.metrics import functional
from tests.parallel.reader_script import BATCH, ROWS, Record, model_of, schema_of
from tests.support.nightly import NIGHTLY
from tests.support.workers import launch

SCRIPT = Path(__file__).with_name("reader_script.py")
STEPS = 14  # of 10 in a pass


def run(workers: int, directory: Path, *parts: str, code: int = 0) -> None:
    """Train parts with so many workers."""
    ended = launch("-n", str(workers), str(SCRIPT), str(directory), *parts, cwd=directory)
    assert (ended.returncode == 0) is (code == 0), ended.stdout + ended.stderr


def found(directory: Path, part: str, workers: int) -> list[dict[str, Any]]:
    """Return what each worker wrote after a part."""
    files = [directory / f"{part}.{rank}.pickle" for rank in range(workers)]
    return [pickle.loads(file.read_bytes()) for file in files]


def keys(workers: list[dict[str, Any]]) -> list[int]:
    """Return the keys of the column `row` in all batches."""
    (row,) = [field for field in schema_of().fields if field.name == "row"]
    every = [batch[0][:, row.start] for each in workers for batch in each["batches"]]
    return np.concatenate(every).tolist()


def assert_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    for left, right in zip(one["dense"], other["dense"], strict=True):
        np.testing.assert_array_equal(left, right)
    assert one["tables"].keys() == other["tables"].keys()
    for name, rows in one["tables"].items():
        for part, values in rows.items():
            np.testing.assert_array_equal(values, other["tables"][name][part], f"{name} {part}")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of three workers: a whole training, and one that stopped after step 7."""
    directory = tmp_path_factory.mktemp("reader")
    rng = np.random.default_rng(0)
    rows = {
        "row": np.arange(ROWS),
        "user": rng.integers(0, 50, ROWS),
        "seen": [list("abcdef"[: int(k)]) for k in rng.integers(0, 6, ROWS)],
        "price": rng.normal(0, 9, ROWS),
        "clicked": rng.integers(0, 2, ROWS),
    }
    pq.write_table(pa.table(rows), directory / "rows.parquet", row_group_size=170)
    run(3, directory, f"whole:{STEPS}", "cut:7")
    for name in ("fewer1", "fewer2", "one"):
        shutil.copytree(directory / "cut", directory / name)
    return directory


def test_three_workers_go_on_with_the_same_bits(three: Path) -> None:
    run(3, three, f"cut:{STEPS}")
    whole = found(three, f"whole.{STEPS}", 3)
    first, rest = found(three, "cut.7", 3), found(three, f"cut.{STEPS}", 3)
    for one, before, after in zip(whole, first, rest, strict=True):
        assert after["first"] == 7
        assert before["losses"] + after["losses"] == one["losses"]
        assert_same_bits(one, after)


@pytest.mark.skipif(not NIGHTLY, reason="a case that MINDSPORE_REC_NIGHTLY=1 runs")
def test_one_worker_goes_on_with_the_losses_of_three(three: Path) -> None:
    run(1, three, f"fewer1:{STEPS}")
    whole, after = found(three, f"whole.{STEPS}", 3), found(three, f"fewer1.{STEPS}", 1)
    np.testing.assert_allclose(after[0]["losses"], whole[0]["losses"][7:], rtol=1e-5)


def test_two_workers_go_on_with_the_rows_that_are_left(three: Path) -> None:
    run(2, three, "fewer2:10")
    before, after = found(three, "cut.7", 3), found(three, "fewer2.10", 2)
    rows = pq.read_table(three / "rows.parquet")
    every = schema_of().fit(rows).arrays_of(rows)["ids"]
    (row,) = [field for field in schema_of().fields if field.name == "row"]
    assert sorted(keys(before) + keys(after)) == sorted(every[:, row.start].tolist())
    whole = found(three, f"whole.{STEPS}", 3)
    np.testing.assert_allclose(after[0]["losses"], whole[0]["losses"][7:10], rtol=2e-6)
    # One process that trains the batches of both together has these losses too.
    ms.set_context(mode=ms.GRAPH_MODE)
    model, record = model_of(), Record()
    RecCheckpoint(three / "one", every_steps=100, states=model.states).restore(model, new_data=True)
    steps = zip(*(each["batches"] for each in after), strict=True)
    together = [tuple(map(np.concatenate, zip(*step, strict=True))) for step in steps]
    assert [len(batch[0]) for batch in together] == [BATCH] * 3
    model.train(1, together, record, progress=False)
    np.testing.assert_allclose(record.losses, after[0]["losses"], rtol=2e-6)
    # The workers' metrics of weighted rows are the metrics of one process.
    assert after[0]["metrics"] == after[1]["metrics"]
    thinned = read(three / "rows.parquet", model.schema, sample=Sample(negatives=0.5, seed=1))
    metrics = model.eval(thinned, progress=False)
    assert metrics == pytest.approx(after[0]["metrics"], rel=1e-4)
    assert metrics["log_loss"] != pytest.approx(unweighted_loss(model, thinned), rel=1e-3)


def unweighted_loss(model: RecModel, rows: Rows) -> float:
    table = rows.to_table()
    label = np.asarray(table["clicked"])
    return functional.log_loss(label, model.predict(table.drop_columns(["clicked"])))


@pytest.mark.skipif(not NIGHTLY, reason="a case that MINDSPORE_REC_NIGHTLY=1 runs")
@pytest.mark.parametrize("step", [8, 9, 10, 11, 13])
def test_killed_workers_go_on_with_the_same_bits(three: Path, step: int) -> None:
    name = f"killed{step}"
    run(3, three, f"{name}:{step}:kill", code=1)
    run(3, three, f"{name}:{STEPS}")
    whole, rest = found(three, f"whole.{STEPS}", 3), found(three, f"{name}.{STEPS}", 3)
    for one, after in zip(whole, rest, strict=True):
        assert after["first"] == 7 and after["losses"] == one["losses"][7:]
        assert_same_bits(one, after)
