# SPDX-License-Identifier: Apache-2.0
"""The online-learning example end to end: with Kafka, with kill -9, and once more where it was."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from examples.online_learning.events import Clicks
from mindspore_rec.common.run.chain import Entry, newest_chain
from mindspore_rec.common.run.rows import rows_at
from mindspore_rec.common.run.state_file import read_states
from tests.support.kafka_broker import need_broker
from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT, run_program

EXAMPLE = ROOT / "examples" / "online_learning"


def command(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program(EXAMPLE / script, *arguments, seconds=400)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[dict]], list[int]]:
    """One run in which the trainer is killed, and a second one in the same directory."""
    if not NIGHTLY:
        pytest.skip("trainers of two workers are run and killed so")
    need_broker()
    directory = tmp_path_factory.mktemp("online") / "run"
    histories: list[list[dict]] = []
    saved: list[int] = []
    for events, more in ((20_000, ["--kill-every", "0.5", "--kills", "1"]), (5_000, [])):
        events += sum(saved)
        figures = directory.parent / "figures.json"
        done = command(
            "run.py", "--directory", str(directory), "--rate", "1500", "--events", str(events),
            "--seconds", "300", "--json", str(figures), *more,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "stopping; the trainer saves" in done.stdout
        histories.append(json.loads(figures.read_text()))
        saved.append(rows_trained(newest_chain(directory / "checkpoints")[-1]))
    return directory, histories, saved


def rows_trained(entry: Entry) -> int:
    return read_states(entry.path)["objects"]["online"]["rows"]


def test_it_goes_on_after_kills_and_after_its_end(runs):
    directory, (first, second), saved = runs
    assert first[-1]["trained"] >= 20_000
    assert first[-1]["trainer_restarts"] == 1
    assert second[-1]["trained"] >= saved[0] + 5_000
    # The second run's figures begin with what the first one saved, not with nothing.
    trained = [line["trained"] for line in second if line["trained"]]
    assert trained[0] >= saved[0] > 0
    log = (directory / "logs" / "trainer.log").read_text()
    assert log.count("trainer: starts") + log.count("trainer: goes on at step") == 3


def test_every_event_is_trained_once(runs):
    """The occurrences that the tables have counted are those of the stream's first events."""
    directory, _, saved = runs
    chain, trained = newest_chain(directory / "checkpoints"), saved[-1]
    assert trained >= saved[0] + 5_000
    events = Clicks()
    ids = events.pipeline().apply(events.batch(0, trained, sent=1.0))["ids"]
    keys, counts = np.unique(ids, return_counts=True)
    for table in ("online.embedding", "online.first_order"):
        rows = np.concatenate(list(rows_at(chain, table)))
        assert np.array_equal(rows["key"], keys)
        assert np.array_equal(rows["count"], counts)


def test_predictor_follows_and_figures_make_sense(runs):
    _, (first, second), _ = runs
    last = second[-1]
    assert last["version"] > 0
    assert last["freshness"] > 0
    assert last["auc"] > 0.55
    assert max(line["events_per_second"] for line in first + second) > 100


def test_every_part_has_help():
    scripts = ("run.py", "producer.py", "worker.py", "trainer.py", "serve.py")
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(lambda script: command(script, "--help"), scripts):
            assert done.returncode == 0 and "--directory" in done.stdout, done.args


def test_options_that_do_nothing_are_refused():
    done = command("producer.py", "--speed", "10")
    assert done.returncode == 2 and "--speed is for --data" in done.stderr
    done = command("run.py", "--rate", "-1")
    assert done.returncode == 2 and "--rate must be above 0" in done.stderr
    done = command("run.py", "--kills", "1")
    assert done.returncode == 2 and "--kills is for --kill-every" in done.stderr
