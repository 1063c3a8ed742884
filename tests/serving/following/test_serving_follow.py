# SPDX-License-Identifier: Apache-2.0
"""A predictor behind a training: whole states only, and a way on wherever there is one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec.common.run.chain import entries
from mindspore_rec.serving import Predictor
from tests.serving.following.test_serving_chain import INPUTS, delta, flip, full, hide, marks
from tests.serving.serving_network import Marked, train

pytestmark = pytest.mark.usefixtures("graph_mode")


def back(hidden: Path) -> None:
    hidden.rename(hidden.with_name(hidden.name.removeprefix(".away-")))


@pytest.fixture
def parts(run: Path) -> dict[int, Path]:
    """A run of which only step 0 is there yet; what else there is, hidden, by step."""
    shutil.rmtree(full(run, 4))
    return {step: hide(delta(run, step)) for step in range(1, 7)}


def test_follows_deltas_as_they_come(run: Path, parts: dict[int, Path], wait) -> None:
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=0.02) as predictor:
        assert predictor.status().version == 0
        for step, hidden in parts.items():
            back(hidden)
            wait(lambda step=step: predictor.status().version == step)
            assert marks(predictor) == {float(step)}
        assert predictor.status().error is None
        assert predictor.status().deltas_applied == 6


def test_wake_beats_polling(run: Path, parts: dict[int, Path], wait) -> None:
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=1000) as predictor:
        back(parts[1])
        predictor.wake()
        wait(lambda: predictor.status().version == 1)
        back(parts[2])
        time.sleep(0.3)
        assert predictor.status().version == 1
        predictor.wake()
        wait(lambda: predictor.status().version == 2)


def test_serves_on_through_a_gap(run: Path, parts: dict[int, Path], wait) -> None:
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=0.02) as predictor:
        back(parts[1])
        back(parts[3])
        wait(lambda: predictor.status().error)
        status = predictor.status()
        assert (status.version, status.lag) == (1, 1)
        assert str(delta(run, 3)) in str(status.error) and "is missing" in str(status.error)
        assert marks(predictor) == {1.0}
        back(parts[2])
        wait(lambda: predictor.status().version == 3)
        assert predictor.status().error is None
        assert marks(predictor) == {3.0}


def test_serves_on_through_damage(run: Path, parts: dict[int, Path], wait) -> None:
    file = parts[2] / "table_0.arrow"
    whole = file.read_bytes()
    flip(file)
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=0.02) as predictor:
        for step in (1, 2, 3):
            back(parts[step])
        wait(lambda: predictor.status().error)
        damaged = delta(run, 2) / "table_0.arrow"
        assert predictor.status().version == 1
        wait(lambda: str(damaged) in str(predictor.status().error))
        assert marks(predictor) == {1.0}
        damaged.write_bytes(whole)
        wait(lambda: predictor.status().version == 3)
        assert predictor.status().error is None
        assert marks(predictor) == {3.0}


def test_full_checkpoint_where_deltas_are_gone(run: Path, wait) -> None:
    away = [hide(full(run, 4)), *(hide(delta(run, step)) for step in (2, 3, 4, 5, 6))]
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=0.02) as predictor:
        assert predictor.status().version == 1
        predictor.network.one.embedding_table.write_rows(
            np.array([77]), np.ones((1, 4), np.float32)
        )
        for hidden in away:
            if "2.delta" not in hidden.name:
                back(hidden)
        wait(lambda: predictor.status().version == 6)
        status = predictor.status()
        assert (status.error, status.lag, status.fulls_loaded) == (None, 0, 2)
        assert marks(predictor) == {6.0}
        # It replaces: a row that the checkpoint does not have is gone.
        assert not predictor.network.one.embedding_table.has_rows(np.array([77]))[0]


@pytest.mark.parametrize("steps", [1, 3, 5])  # to before, to the same and to after where it was
def test_training_that_goes_back(tmp_path: Path, wait, unique, steps: int) -> None:
    root = tmp_path / "run"
    net, served = Marked(unique()), Marked(unique())
    train(root, 5, net=net, close=False, every_steps=100, delta_every_steps=1)
    _rename(served, net)
    with Predictor(root, served, inputs=INPUTS, poll_seconds=1000) as predictor:
        before = predictor.status()
        assert before.version == 5
        train(root, steps, net=net, restore=2, every_steps=100, delta_every_steps=1)
        assert [entry.step for entry in entries(root)] == [*range(3 + steps)]
        predictor.wake()
        newest = entries(root)[-1].state
        wait(lambda: predictor.status().state == newest)
        assert newest != before.state and predictor.status().version == 2 + steps
        assert marks(predictor) == {2.0 + steps}
        assert predictor.status().error is None


def test_training_that_goes_on_with_another_precision(tmp_path: Path, wait, unique) -> None:
    """The restart rounds all rows; the delta after it has only the rows that were trained."""
    root, name = tmp_path / "run", unique()
    net, served, key = Marked(name), Marked(unique()), np.array([77])
    net.one.embedding_table.write_rows(key, np.full((1, 4), 1.001, np.float32))
    train(root, 2, net=net, every_steps=100, delta_every_steps=1)
    _rename(served, net)
    with Predictor(root, served, inputs=INPUTS, poll_seconds=1000) as predictor:
        narrow = Marked(name, value_dtype=ms.bfloat16)
        train(root, 1, net=narrow, every_steps=100, delta_every_steps=1)
        predictor.wake()
        wait(lambda: predictor.status().version == 3)
        assert marks(predictor) == {3.0}
        assert (served.one.embedding_table.read_rows(key) == 1.0).all()
        assert predictor.status().error is None


def _rename(served: Marked, trained: Marked) -> None:
    """Both are in one process, where a name is free for one table only."""
    for one, other in ((served.one, trained.one), (served.two, trained.two)):
        one.embedding_table._table_name = other.embedding_table.name


def test_another_run_in_the_directory(run: Path, tmp_path: Path, wait) -> None:
    train(tmp_path / "other", 1, net=Marked("serving.stranger"), every_steps=9)
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=0.02) as predictor:
        for path in run.glob("0*"):
            shutil.rmtree(path)
        for path in (tmp_path / "other").glob("0*"):
            path.rename(run / path.name)
        wait(lambda: "is of run" in str(predictor.status().error))
        assert predictor.status().version == 6
        assert marks(predictor) == {6.0}
