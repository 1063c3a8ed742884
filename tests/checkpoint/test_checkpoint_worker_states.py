# SPDX-License-Identifier: Apache-2.0
"""States of several workers: each has its own back, and what other numbers of workers get."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.share import Share
from mindspore_rec.common.run.state_file import write_states
from mindspore_rec.train.checkpoint.random_state import random_state, set_random_state
from mindspore_rec.train.checkpoint.worker_states import WorkerStates


class Plain:
    def __init__(self) -> None:
        self.state: Any = None

    def load_state_dict(self, state: Any) -> None:
        self.state = state


class Merging(Plain):
    def load_worker_states(self, states: list[Any], worker: int, workers: int) -> None:
        self.state = (states, worker, workers)


def saved(path: Path, states: list[Any], name: str = "metric") -> Entry:
    """Return a checkpoint of as many workers as there are states of an object."""
    for worker, state in enumerate(states):
        random.seed(worker)
        written = {"objects": {name: state}, "random": random_state()}
        write_states(written, path, worker)
    manifest = {"workers": len(states)} if len(states) > 1 else {}
    return Entry(path, "full", 0, "run", "state", None, manifest)


@pytest.mark.parametrize("kind", [Plain, Merging])
@pytest.mark.parametrize("workers", [1, 3])
def test_each_worker_has_its_own_back(tmp_path, kind, workers):
    entry = saved(tmp_path, [{"n": np.arange(worker)} for worker in range(workers)])
    for worker in range(workers):
        owner = kind()
        states = WorkerStates(entry, Share(worker, workers))
        states.load_all({"metric": owner})
        np.testing.assert_array_equal(owner.state["n"], np.arange(worker))
        set_random_state(states.random())
        assert random.random() == random.Random(worker).random()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_another_number_of_workers(tmp_path, workers):
    entry = saved(tmp_path, [{"n": 0}, {"n": 1}, {"n": 2}])
    draws = set()
    for worker in range(workers):
        states = WorkerStates(entry, Share(worker, workers))
        owner = Merging()
        states.load("metric", owner)
        assert owner.state == ([{"n": 0}, {"n": 1}, {"n": 2}], worker, workers)
        with pytest.raises(CheckpointError, match="is of 3 workers with a part each"):
            states.load("metric", Plain())
        for _ in range(2):
            set_random_state(states.random())
            draws.add((random.random(), float(np.random.random())))  # noqa: NPY002
    assert len(draws) == workers


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_what_was_the_same_on_all_is_so_on_any_number(tmp_path, workers):
    state = {"n": [1, {"values": np.eye(2)}], "text": "a"}
    entry = saved(tmp_path, [state] * 3)
    for worker in range(workers):
        owner = Plain()
        WorkerStates(entry, Share(worker, workers)).load("metric", owner)
        np.testing.assert_array_equal(owner.state["n"][1]["values"], np.eye(2))


def test_data_get_the_states_of_all(tmp_path):
    places: list[Any] = [{"batches": 3, "at": np.arange(2)}, {"batches": 4, "at": np.arange(3)}]
    entry = saved(tmp_path, places, "train_dataset")
    for share in (Share(0, 2), Share(1, 2), Share(0, 1), Share(2, 3)):
        found = WorkerStates(entry, share).data()
        assert found["batches"] == 4
        for one, other in zip(found["workers"], places, strict=True):
            np.testing.assert_array_equal(one["at"], other["at"])


def test_objects_must_be_the_same_on_all_workers(tmp_path):
    entry = saved(tmp_path, [{"n": 0}, {"n": 1}])
    write_states({"objects": {"other": 1}, "random": random_state()}, tmp_path, 1)
    with pytest.raises(CheckpointError, match="other objects"):
        WorkerStates(entry, Share(0, 2))
