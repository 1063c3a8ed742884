# SPDX-License-Identifier: Apache-2.0
"""Kills of workers of an online training: each event is trained exactly once.

With equal numbers of workers the end is that of a run without any kill, bit for bit; where their
number has changed, to rounding.

The settings `worker_kills` and `killed_workers` (tests/support/settings.py) are how often a worker
is killed in the first test, and how many workers there are.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.run.chain import entries, newest_chain, verify_chain
from mindspore_rec.common.run.state_file import read_states
from tests.online.workers_setting import BATCH, PARTITIONS, Job, Run, fill, messages
from tests.stream.test_stream_kafka import read_all
from tests.support.lives import assert_same
from tests.support.nightly import NIGHTLY
from tests.support.settings import SETTINGS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.distributed,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

KILLS = SETTINGS.worker_kills
WORKERS = SETTINGS.killed_workers
MOMENTS = ("save", "exchange", "step", "merge", "start", "launcher")


def kill(job: Job, run: Run, moment: str, rng: np.random.Generator) -> bool:
    """Kill a worker at a moment, or the launcher; return whether the moment came."""
    victim = int(rng.integers(job.workers))
    came = True
    if moment in ("save", "merge"):
        kind = "delta" if moment == "save" else "full"
        deadline = time.monotonic() + 2
        while not (came := run.saving(kind)) and time.monotonic() < deadline:
            time.sleep(0.0002)
        time.sleep(rng.random() * 0.004)
    elif moment == "exchange":  # the victim waits for the other one in the middle of its step
        job.signal((victim + 1) % job.workers, signal.SIGSTOP)
        time.sleep(0.1)
    elif moment == "step":
        time.sleep(rng.random() * 0.02)
    elif moment == "start":
        time.sleep(rng.random() * 0.5)
    if moment == "launcher":
        job.kill_launcher()
    else:
        job.signal(victim, signal.SIGKILL)
    return came


def train_with_kills(run: Run, workers: int, kills: int) -> list[str]:
    """Train to the end, with kills on the way; return a word on each of them."""
    rng = np.random.default_rng(20 + workers)
    goals = np.sort(rng.choice(np.arange(4, run.steps - 40), kills, replace=False))
    killed: list[str] = []
    began: list[int] = []
    job: Job | None = None
    try:
        for number, goal in enumerate(goals):
            if job is None or job.code is not None:  # no restart was left
                job = Job(run, workers, restarts=2)
            moment = MOMENTS[number % len(MOMENTS)]
            if job.reach(0 if moment == "start" else int(goal)):
                came = kill(job, run, moment, rng)
                job.next_life()
                began += job.restored
                job.restored.clear()
                if job.code != 0:
                    killed.append(f"{moment}{'' if came else ' (missed)'} after step {goal}")
                    print(killed[-1], flush=True)
            assert job.code in (None, 0, 137, -signal.SIGKILL), job.printed()
            if job.code == 0:  # a fast machine came to the end before the moment
                break
        if job is None or job.code is not None:
            job = Job(run, workers)
        assert job.end() == 0, job.printed()
        began += job.restored
    finally:
        if job is not None:
            job.__exit__(None, None, None)
    print(f"lives began at steps {began}")
    assert began == sorted(began)
    return killed


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested values by their path."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for name, each in pairs for k, v in flat(each, f"{path}.{name}").items()}
    return {path: value.tobytes() if isinstance(value, np.ndarray) else value}


def states(run: Run, worker: int) -> dict[str, Any]:
    """Return the states of a worker in the last checkpoint: place in the stream, generators."""
    last = newest_chain(run.root)[-1]
    assert last.step == run.steps
    found = read_states(last.path, worker)
    # Marks say from where a later run looks for dead letters: they differ between runs.
    del found["objects"]["train_dataset"]["source"]["dead_marks"]
    return flat(found)


def rows(run: Run, workers: int) -> dict[str, Any]:
    """Return all rows and counters by table and key, and the dense parameters, of all workers."""
    found: dict[str, Any] = {}
    for worker in range(workers):
        with np.load(run.out / f"{worker}.npz") as file:
            for name in file:
                table, _, column = name.rpartition(" ")
                if table.startswith("parameter") or column in ("clock", "keys"):
                    found[name] = file[name] if column != "keys" else None
                    continue
                of_table = found.setdefault(name, {})
                of_table.update(zip(file[f"{table} keys"].tolist(), file[name], strict=True))
    return found


def trained_events(run: Run, workers: int) -> set[int]:
    """Return the events that were trained, after checking that each was exactly once."""
    times = rows(run, workers)["kills.seen rows values"]
    assert {float(each[0]) for each in times.values()} == {1.0}
    assert len(times) == run.steps * BATCH
    return set(times)


def letters(run: Run) -> set[bytes]:
    """Return the keys of the dead letters, each of which is there once."""
    keys = [letter.key for letter in read_all(run.brokers, run.dead)]
    assert len(set(keys)) == len(keys)
    return set(keys)


def test_kills_of_workers(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> None:
    steps = 70 + 6 * KILLS
    name = topic(PARTITIONS)
    fill(broker.address, name, messages(steps, even=False))
    whole = Run(broker.address, name, tmp_path, "whole", steps)
    killed = Run(broker.address, name, tmp_path, "killed", steps, on_ssd=True)
    whole.finish(WORKERS)
    said = train_with_kills(killed, WORKERS, KILLS)
    assert len(said) >= 0.8 * KILLS - 1
    for worker in range(WORKERS):
        assert_same(killed.out / f"{worker}.npz", whole.out / f"{worker}.npz")
        one, other = states(killed, worker), states(whole, worker)
        assert {name for name in one.keys() | other if one.get(name) != other.get(name)} == set()
    assert trained_events(killed, WORKERS) == trained_events(whole, WORKERS)
    assert letters(killed) == letters(whole) != set()
    verify_chain(newest_chain(killed.root))
    assert entries(killed.root)[-1].step == steps


def assert_close(run: Run, workers: int, whole: Run) -> None:
    """Compare with a training of one process on the same batches: the same keys and counts, and
    numbers to rounding."""
    got, want = rows(run, workers), rows(whole, 1)
    assert got.keys() == want.keys()
    for name, values in want.items():
        if values is None:
            continue
        if not isinstance(values, dict):
            np.testing.assert_allclose(got[name], values, rtol=1e-6, atol=1e-6, err_msg=name)
            continue
        assert got[name].keys() == values.keys(), name
        keys = list(values)
        mine, theirs = (np.array([each[key] for key in keys]) for each in (got[name], values))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6, err_msg=name)


def offsets(run: Run, workers: int) -> dict[str, int]:
    """Return the place in each partition at the end, of all workers."""
    found: dict[str, int] = {}
    for worker in range(workers):
        place = read_states(newest_chain(run.root)[-1].path, worker)["objects"]["train_dataset"]
        found.update(place["source"]["order"]["offsets"])
    return found


@pytest.mark.skipif(not NIGHTLY, reason="40 s; tests/parallel has other numbers of workers")
@pytest.mark.parametrize("divided", ["rows", "partitions", "given"])
def test_other_numbers_of_workers(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, divided: str
) -> None:
    """2 workers, of which one is killed, then 3, of which one is killed, then one process.

    Where they divide partitions, each batch is one message of every partition, whatever the number
    of workers; where they divide rows, all read the same batches.
    """
    steps = 60
    name = topic(PARTITIONS)
    fill(broker.address, name, messages(steps, even=divided != "rows"))
    whole = Run(broker.address, name, tmp_path, "whole", steps, dropout=0.0, divided=divided)
    changed = replace(whole, name="changed")
    whole.finish(1)
    rng = np.random.default_rng(3)
    for workers, goal in ((2, 20), (3, 40)):
        with Job(changed, workers) as job:
            assert job.reach(goal)
            kill(job, changed, "save", rng)
            assert job.end() == 137, job.printed()
    last = changed.finish(1)
    assert 40 - 2 * changed.delta_every_steps <= last.restored[0] < steps
    assert trained_events(changed, 1) == trained_events(whole, 1)
    assert offsets(changed, 1) == offsets(whole, 1)
    assert letters(changed) == letters(whole)
    assert bool(letters(whole)) == (divided == "rows")
    assert_close(changed, 1, whole)
