# SPDX-License-Identifier: Apache-2.0
"""What a predictor applies, and what it refuses."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec import load_checkpoint, save_checkpoint
from mindspore_rec.common.run.chain import entry_name
from mindspore_rec.common.run.manifest import MANIFEST
from mindspore_rec.serving import ChainError, Predictor
from tests.serving.serving_network import UNKNOWN, Marked, ids, train

INPUTS = ["ids:INT64:-1,3"]


def delta(root: Path, step: int) -> Path:
    return root / entry_name(step, "delta")


def full(root: Path, step: int) -> Path:
    return root / entry_name(step, "full")


def only(root: Path, *kept: Path) -> None:
    for path in root.iterdir():
        if path not in kept and not path.name.startswith("."):
            shutil.rmtree(path)


def hide(path: Path) -> Path:
    """Takes a checkpoint away; the place where it is then."""
    hidden = path.with_name(f".away-{path.name}")
    path.rename(hidden)
    return hidden


def flip(file: Path) -> None:
    """One bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def marks(predictor: Predictor, rows: int = 5) -> set[float]:
    return set(np.unique(predictor.predict(ids(rows))).tolist())


@pytest.fixture
def at_start(run: Path, graph_mode: None) -> Iterator[Predictor]:
    """At step 0, not following, with the deltas of steps 1 to 6 before it and no other full one."""
    shutil.rmtree(full(run, 4))
    away = [hide(delta(run, step)) for step in range(1, 7)]
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        for path in away:
            path.rename(run / path.name.removeprefix(".away-"))
        yield predictor


def refused(predictor: Predictor, path: Path, *words: str) -> None:
    """It says why, and nothing has changed."""
    before = predictor.status()
    answers = predictor.predict(ids(4))
    with pytest.raises(ChainError) as caught:
        predictor.apply(path)
    for word in (str(path), *words):
        assert word in str(caught.value)
    after = predictor.status()
    assert (after.state, after.version) == (before.state, before.version)
    np.testing.assert_array_equal(predictor.predict(ids(4)), answers)


def test_loads_the_newest_state(run: Path, graph_mode: None) -> None:
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        status = predictor.status()
        assert (status.version, status.lag, status.error) == (6, 0, None)
        assert (status.fulls_loaded, status.deltas_applied) == (1, 2)
        assert marks(predictor) == {6.0}
        age = time.time() - json.loads((delta(run, 6) / MANIFEST).read_text())["saved_at"]
        assert status.age_seconds == pytest.approx(age, abs=60)
        assert not predictor.network.one.embedding_table.has_optimizer


def test_unknown_keys_read_the_default(run: Path, graph_mode: None) -> None:
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        (row,) = predictor.predict(np.array([[1, 10**15, -3]]))
        np.testing.assert_array_equal(row[:4], 6)
        np.testing.assert_array_equal(row[4:12], UNKNOWN)
        np.testing.assert_array_equal(row[12:], [6, 0.5, 0.5, 6, 6])
        rows = [table.row_count for table in (predictor.network.one.embedding_table,)]
        assert rows == [50]  # asking inserts nothing


def test_deltas_one_by_one(at_start: Predictor, run: Path) -> None:
    for step in range(1, 7):
        assert at_start.status().lag == 7 - step
        at_start.apply(str(delta(run, step)))
        assert at_start.status().version == step
        assert marks(at_start) == {float(step)}
    assert at_start.status().deltas_applied == 6


def test_refuses_gap(at_start: Predictor, run: Path) -> None:
    refused(at_start, delta(run, 2), "a delta is missing", "step 0")
    at_start.apply(delta(run, 1))
    refused(at_start, delta(run, 3), "a delta is missing", "step 1")
    at_start.apply(delta(run, 2))


def test_refuses_duplicate(at_start: Predictor, run: Path) -> None:
    at_start.apply(delta(run, 1))
    refused(at_start, delta(run, 1), "applied already")


def test_refuses_older_ones(at_start: Predictor, run: Path) -> None:
    for step in (1, 2, 3):
        at_start.apply(delta(run, step))
    refused(at_start, delta(run, 2), "out of order", "step 3")
    refused(at_start, full(run, 0), "out of order")


def test_refuses_another_run(at_start: Predictor, tmp_path: Path) -> None:
    train(tmp_path / "other", 1, net=Marked("serving.other"))
    refused(at_start, delta(tmp_path / "other", 1), "is of run", "follows run")


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "missing", "swap"])
@pytest.mark.parametrize("file", ["table_0.arrow", "dense.safetensors"])
def test_refuses_damaged_files(at_start: Predictor, run: Path, file: str, damage: str) -> None:
    path = delta(run, 1) / file
    whole = path.read_bytes()
    if damage == "flip":
        flip(path)
    elif damage == "truncate":
        path.write_bytes(whole[:-1])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes((delta(run, 2) / file).read_bytes())
    refused(at_start, delta(run, 1), str(path))
    path.write_bytes(whole)
    at_start.apply(delta(run, 1))
    assert marks(at_start) == {1.0}


def test_refuses_damaged_manifests(at_start: Predictor, run: Path) -> None:
    path = delta(run, 1) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["step"] += 1
    path.write_text(json.dumps(manifest))
    refused(at_start, delta(run, 1), str(path), "damaged")
    path.write_text(path.read_text()[:-20])
    refused(at_start, delta(run, 1), str(path), "damaged")
    moved = delta(run, 9)
    delta(run, 2).rename(moved)
    refused(at_start, moved, "not in its own directory")


def test_refuses_tables_of_another_shape(run: Path, graph_mode: None) -> None:
    with pytest.raises(ValueError, match="dim"):
        Predictor(run, lambda: Marked(dim=5), inputs=INPUTS, follow=False)
    with pytest.raises(ValueError, match="tables"):
        Predictor(run, lambda: Marked("serving.named_otherwise"), inputs=INPUTS, follow=False)


def test_without_builder_the_network_must_be_given(run: Path) -> None:
    with pytest.raises(ValueError, match="network must be given"):
        Predictor(run, follow=False)


def test_a_network_whose_file_is_missing_is_no_removed_checkpoint(run: Path) -> None:
    calls = []

    def network() -> Marked:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("called for ever")
        raise FileNotFoundError("no vocabulary.txt")

    with pytest.raises(FileNotFoundError, match="no vocabulary"):
        Predictor(run, network, inputs=INPUTS, follow=False)


def test_starts_from_the_last_good_state(run: Path, graph_mode: None) -> None:
    flip(delta(run, 6) / "table_1.arrow")
    flip(full(run, 4) / "table_0.arrow")
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        status = predictor.status()
        assert (status.version, status.lag) == (5, 1)
        assert (status.fulls_loaded, status.deltas_applied) == (1, 5)
        assert status.error is not None and str(delta(run, 6) / "table_1.arrow") in status.error
        assert marks(predictor) == {5.0}


def test_single_checkpoint_is_served_as_it_is(run: Path, tmp_path: Path, graph_mode: None) -> None:
    net = Marked()
    load_checkpoint(net, run)
    save_checkpoint(net, tmp_path / "saved")
    for table in (net.one.embedding_table, net.two.embedding_table):
        table.close()
    with Predictor(tmp_path / "saved", Marked, inputs=INPUTS) as predictor:
        assert marks(predictor) == {6.0}
        assert predictor.status().error is None
    with pytest.raises(ChainError, match="is a delta"):
        Predictor(delta(run, 6), Marked, inputs=INPUTS)
    flip(tmp_path / "saved" / "manifest.json")
    with pytest.raises(ChainError, match=r"saved/manifest\.json"):
        Predictor(tmp_path / "saved", Marked, inputs=INPUTS)


def test_no_good_checkpoint_at_all(run: Path, graph_mode: None) -> None:
    only(run, full(run, 0))
    flip(full(run, 0) / "dense.safetensors")
    with pytest.raises(ChainError, match=r"dense\.safetensors"):
        Predictor(run, Marked, inputs=INPUTS, follow=False)


def test_waits_for_a_first_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="no checkpoint"):
        Predictor(tmp_path / "nothing", Marked, inputs=INPUTS, wait_seconds=0.2)


def test_closed(run: Path, graph_mode: None) -> None:
    predictor = Predictor(run, Marked, inputs=INPUTS)
    predictor.close()
    with pytest.raises(RuntimeError, match="closed"):
        predictor.predict(ids())
    Marked()  # the tables' names are free


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"poll_seconds": 0}, "poll_seconds"),
        ({"wait_seconds": -1}, "wait_seconds"),
        ({"network": 3}, "network"),
        ({"follow": 1}, "follow"),
        ({"network": Marked, "inputs": ["keys:INT64:-1,3"]}, "arguments of construct"),
        ({"network": Marked, "inputs": ["ids:INT65:-1,3"]}, "datatype"),
        ({"network": Marked, "inputs": ["ids"]}, "name:datatype:shape"),
        ({"network": lambda: 3}, "Cell"),
    ],
)
def test_wrong_arguments(run: Path, graph_mode: None, arguments: dict, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Predictor(run, **arguments)


def test_wrong_inputs_leave_it_whole(run: Path, graph_mode: None) -> None:
    with Predictor(run, Marked, inputs=INPUTS, follow=False) as predictor:
        for wrong in (
            (),
            (ids(), ids()),
            (np.zeros((2, 4), np.int64),),
            (np.zeros(3, np.int64),),
            (np.zeros((0, 3), np.int64),),
            (np.zeros((1, 3), np.float32),),
            (np.zeros((1, 3), np.uint64),),
        ):
            with pytest.raises((TypeError, ValueError), match="input"):
                predictor.predict(*wrong)
        assert marks(predictor) == {6.0}
        assert marks(predictor, 1) == {6.0}
        np.testing.assert_array_equal(predictor.predict(ids(2).astype(np.int32)), 6)
