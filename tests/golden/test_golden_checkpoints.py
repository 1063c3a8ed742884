# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of every version that has written golden files are read, bit for bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import load_checkpoint, tables_of
from mindspore_rec.common.run.chain import newest_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.rows import rows_at
from mindspore_rec.common.run.share import Share
from mindspore_rec.common.run.table_file import to_arrays
from mindspore_rec.serving import Predictor
from mindspore_rec.train.checkpoint.load import load_chain
from tests.golden.golden_run import (
    FILES,
    INPUTS,
    Net,
    Notes,
    Training,
    contents,
    dense_of,
    plain,
    questions,
)

VERSIONS = sorted(path.name for path in FILES.iterdir())
Arrays = dict[str, np.ndarray]


def read(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def at_step(values: Arrays, step: int) -> Arrays:
    start = f"{step}/"
    return {name.removeprefix(start): of for name, of in values.items() if name.startswith(start)}


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def joined(workers: list[Arrays]) -> Arrays:
    """Return the rows and counters of all workers together, sorted by key."""
    found = dict(workers[0])
    for name in found:
        table, kind, *_ = name.split("/")
        if kind in ("row", "counter"):
            keys = np.concatenate([each[f"{table}/{kind}/keys"] for each in workers])
            order = np.argsort(keys)
            assert (np.diff(keys[order]) > 0).all()  # no key is on two
            found[name] = np.concatenate([each[name] for each in workers])[order]
        elif kind == "sketch":
            found[name] = sum_of_sketches([each[name] for each in workers])
    return found


def sum_of_sketches(sketches: list[np.ndarray]) -> np.ndarray:
    """Return the sum; a worker counts in blocks of its own, which are zeros with the others."""
    found = np.zeros_like(sketches[0])
    for each in sketches:
        assert not (found & each).any()
        found |= each
    return found


@pytest.fixture(params=VERSIONS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of a version, unpacked."""
    for path in (FILES / request.param).iterdir():
        if path.suffix == ".zip":
            shutil.unpack_archive(path, tmp_path / path.stem)
        else:
            shutil.copy(path, tmp_path)
    return tmp_path


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    for table in tables_of(made):
        table.bind_optimizer("adam")  # so that its states are loaded
    yield made
    for table in tables_of(made):
        table.close()


def compare(cell: nn.Cell, expected: Arrays) -> None:
    """Tables and the dense parameters that the cell has are those that were noted."""
    tables = {name: of for name, of in expected.items() if not name.startswith("dense/")}
    assert_same(contents(cell), tables)
    dense = dense_of(cell)
    assert_same(dense, {name: expected[name] for name in dense})


def test_each_state_of_a_run(files: Path, net: Net) -> None:
    values, run = read(files / "run.npz"), files / "run"
    assert main(["verify", str(run)]) == 0
    for step in (8, 4):
        load_chain(net, newest_chain(run, step), shares_of(net))
        compare(net, at_step(values, step))
    for step in (4, 8):  # now by deltas
        shutil.rmtree(run / f"{step:012d}.full")
        chain = newest_chain(run, step)
        assert [entry.kind for entry in chain] == ["full"] + ["delta"] * (step // 2)
        load_chain(net, chain, shares_of(net))
        compare(net, at_step(values, step))


def shares_of(net: Net) -> dict[str, Share | None]:
    return {table.name: Share(0, 1) for table in tables_of(net)}


def test_a_training_goes_on(files: Path) -> None:
    training = Training(files / "run")
    assert training.checkpoint.restore(training.model, training.stream) == 8
    compare(training.model.train_network, at_step(read(files / "run.npz"), 8))
    assert training.states() == json.loads((files / "run.json").read_text())
    training.close()


def test_a_saved_checkpoint(files: Path) -> None:
    training = Training(files / "other")
    training.notes.state = {}
    load_checkpoint(training.model, files / "saved", states={"notes": training.notes})
    compare(training.model.train_network, at_step(read(files / "run.npz"), 8))
    assert plain(training.notes.state) == plain(Notes().state)
    training.close()


def static_rows(net: Net, expected: Arrays) -> Arrays:
    """Rows of the static table as one process has them, which are all, with those expected."""
    found = {name: of for name, of in contents(net).items() if name.startswith("golden.static/row")}
    mine = expected["golden.static/row/keys"]
    for name, values in found.items():
        if not name.endswith("/keys"):
            values[mine] = expected[name]
    return found


def test_a_run_of_two_workers(files: Path, net: Net) -> None:
    run = files / "run_of_two"
    assert main(["verify", str(run)]) == 0
    workers = [at_step(read(files / f"run_of_two.{i}.npz"), 4) for i in range(2)]
    for worker, expected in enumerate(workers):
        load_checkpoint(net, run, worker=worker, workers=2)
        compare(net, {**expected, **static_rows(net, expected)})
    load_checkpoint(net, run)
    compare(net, joined(workers))
    shutil.rmtree(run / "000000000004.full")
    load_checkpoint(net, run)
    compare(net, joined(workers))


def test_a_published_run(files: Path) -> None:
    run, values = files / "published", read(files / "published.npz")
    assert main(["verify", str(run)]) == 0
    chain = newest_chain(run)
    assert [entry.kind for entry in chain] == ["full", "delta", "delta"]
    for table in [name.removesuffix("/codes") for name in values if name.endswith("/codes")]:
        found = to_arrays(np.concatenate([*rows_at(chain, table)]))
        np.testing.assert_array_equal(found["keys"], values[f"{table}/keys"])
        np.testing.assert_array_equal(found["codes"], values[f"{table}/codes"])
    with Predictor(run, Net, inputs=INPUTS, rows="int8", follow=False) as predictor:
        # Products are summed in another order on another processor.
        np.testing.assert_allclose(predictor.predict(*questions()), values["answers"], rtol=1e-4)
