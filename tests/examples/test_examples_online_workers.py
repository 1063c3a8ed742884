# SPDX-License-Identifier: Apache-2.0
"""The online-learning example with a trainer of two workers: with Kafka, and kill -9 of each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from examples.online_learning.events import Clicks
from examples.online_learning.kafka.broker import Broker
from examples.online_learning.parts import DATASET, NAMESPACE
from examples.online_learning.worker import EvenSender
from mindspore_rec.common.run.chain import newest_chain, verify_chain
from mindspore_rec.common.run.rows import rows_at
from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.metrics import functional
from mindspore_rec.stream import DataReceiver, MemoryTopic, StopWhen
from tests.examples.test_examples_online_benchmarks import benchmark
from tests.examples.test_examples_online_run import command
from tests.support.kafka_broker import need_broker
from tests.support.nightly import NIGHTLY, nightly
from tests.support.workers import need_mpi

WORKERS = 2
KILLS = 2 if NIGHTLY else 1  # of workers in turn


def need_parts() -> None:
    need_mpi()
    need_broker()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[dict]], list[int]]:
    """A run in which workers are killed; nightly also a second one in the same directory."""
    need_parts()
    directory = tmp_path_factory.mktemp("online") / "run"
    histories: list[list[dict]] = []
    saved: list[int] = []
    runs: list[tuple[int, list[str]]] = [
        (25_000, ["--kill-every", "1.5", "--kills", str(KILLS)]),
        *nightly((5_000, [])),
    ]
    for events, more in runs:
        events += sum(saved)
        figures = directory.parent / "figures.json"
        done = command(
            "run.py", "--directory", str(directory), "--rate", "1500", "--events", str(events),
            "--seconds", "300", "--json", str(figures), "--workers", str(WORKERS), *more,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        histories.append(json.loads(figures.read_text()))
        states = [states_of(directory, worker) for worker in range(WORKERS)]
        assert states[0]["online"]["rows"] == states[1]["online"]["rows"]
        saved.append(states[0]["online"]["rows"])
    return directory, histories, saved


def states_of(directory: Path, worker: int) -> dict:
    """Return the states of a worker in the newest delta."""
    return read_states(newest_chain(directory / "checkpoints")[-1].path, worker)["objects"]


def test_it_goes_on_after_kills_and_after_its_end(runs):
    directory, (first, *later), saved = runs
    assert first[-1]["trained"] >= 25_000
    log = (directory / "logs" / "trainer.log").read_text()
    # Open MPI may fail to start at all, by a thread of its own on a busy machine; then run.py does
    # it again.
    failed_starts = log.count("The PMIx server's listener thread failed to start")
    assert first[-1]["trainer_restarts"] == KILLS + failed_starts
    for second in later:
        assert second[-1]["trained"] >= saved[0] + 5_000
        trained = [line["trained"] for line in second if line["trained"]]
        assert trained[0] >= saved[0] > 0
    # Worker 0 alone reports. Each kill of a worker ended the job, by the launcher's account.
    assert (
        log.count("[0] trainer: starts") + log.count("[0] trainer: goes on at step")
        == len(saved) + KILLS
    )
    assert "[1] trainer:" not in log
    for worker in range(KILLS):
        assert f"worker {worker} was ended by signal 9 (SIGKILL)" in log
    assert log.count("2 workers on this host ended well") == len(saved)


def test_every_event_is_trained_once_by_one_worker(runs):
    """The tables have counted the rows before the saved places of all partitions, and no other."""
    directory, _, saved = runs
    chain, events = newest_chain(directory / "checkpoints"), Clicks()
    verify_chain(chain)
    assert chain[-1].manifest["workers"] == WORKERS
    sent, trained = [], []
    with Broker(directory / "kafka") as broker:
        for shard in range(WORKERS):
            place = states_of(directory, shard)["train_dataset"]["source"]
            assert place["partitions"] == [shard]
            ids = np.concatenate(
                [
                    np.stack(batch["ids"].to_numpy(zero_copy_only=False))
                    for batch in DataReceiver(
                        broker.address, NAMESPACE, shard, DATASET, stop=StopWhen(idle_seconds=10.0)
                    )
                ]
            )
            sent.append(ids)
            trained.append(ids[: place["rows"]])
            assert len(trained[-1]) == place["rows"] > 0.4 * saved[-1]
    assert sum(map(len, trained)) == saved[-1]
    keys, counts = np.unique(np.concatenate(trained), return_counts=True)
    for table in ("online.embedding", "online.first_order"):
        rows = np.sort(np.concatenate(list(rows_at(chain, table))), order="key")
        assert np.array_equal(rows["key"], keys)
        assert np.array_equal(rows["count"], counts)
    # The partitions have the first events of the stream, each once; but the last ones, of which one
    # partition may have its part and the other one not yet. The events are divided evenly, so the
    # lengths of the partitions tell how many these are, but for those of a message.
    lengths, message = [len(ids) for ids in sent], 500
    found = Counter(map(bytes, np.ascontiguousarray(np.concatenate(sent))))
    assert first_events(events, WORKERS * min(lengths) - message) <= found
    assert found <= first_events(events, WORKERS * max(lengths) + message)


def first_events(events: Clicks, number: int) -> Counter[bytes]:
    """Return how often each row of keys is among the first events of the stream."""
    ids = events.pipeline().apply(events.batch(0, number, sent=1.0))["ids"]
    return Counter(map(bytes, np.ascontiguousarray(ids)))


def test_predictor_follows_and_the_model_learns(runs):
    directory, (first, *later), _ = runs
    last = [first, *later][-1][-1]
    versions = {line["version"] for line in first if line["version"]}
    assert len(versions) > 1
    assert last["version"] > max(versions) if later else last["version"] == max(versions)
    assert last["freshness"] > 0
    # A trainer that goes on knows it again some thousand rows later, and the run may end before.
    assert all(line["auc"] > 0.5 for line in first if line["trained"] > 20_000 and line["auc"])
    assert any(line["auc"] for line in first)
    online = states_of(directory, 0)["online"]  # each row was scored before it was trained on
    label, logit = online["label"][-10_000:], online["prediction"][-10_000:]
    assert functional.auc(label, logit) > 0.6
    rate = np.full(len(label), np.mean(label))  # the best of predictions that are all the same
    assert functional.log_loss(label, logit, from_logits=True) < functional.log_loss(label, rate)
    assert max(line["events_per_second"] for history in runs[1] for line in history) > 100


def test_another_number_of_workers_is_refused(runs):
    directory, _, saved = runs
    done = command("run.py", "--directory", str(directory), "--workers", "3", "--seconds", "1")
    assert done.returncode == 1
    assert "error: --workers must be 2, as this run was begun, got 3" in done.stderr
    assert states_of(directory, 0)["online"]["rows"] == saved[-1]


@pytest.mark.parametrize(
    ("script", "value"),
    [
        *(("run.py --workers", value) for value in ("0", "65", "two")),
        ("worker.py --shards", "-1"),
        *nightly(("run.py --workers", "1.5"), ("worker.py --shards", "0")),
    ],
)
def test_illegal_numbers_of_workers_are_refused(script, value):
    name, option = script.split()
    done = command(name, option, value)
    assert done.returncode == 2
    expected = f"argument {option}: must be a whole number from 1 to 64, got {value!r}"
    assert expected in done.stderr or f"{option}: expected one argument" in done.stderr


def test_events_of_a_batch_are_divided_evenly():
    topic = MemoryTopic(partitions=2)
    sender = EvenSender(topic, num_shards=2, sender_name="w")
    for first, rows in ((0, 5), (5, 1), (6, 1), (7, 4), (11, 3)):
        sender.send(pa.table({"x": list(range(first, first + rows))}))
    found = []
    for shard in range(2):
        stop = StopWhen(idle_seconds=0.1)
        with DataReceiver(topic, shard_id=shard, stop=stop) as receiver:
            found.append([x for batch in receiver for x in batch["x"].to_pylist()])
    assert found == [[0, 1, 5, 7, 8, 11, 12], [2, 3, 4, 6, 9, 10, 13]]


@pytest.mark.skipif(not NIGHTLY, reason="a run of two workers, and freshness of one, are tested")
def test_freshness_of_every_probe_is_measured(tmp_path):
    need_parts()
    figures = benchmark(
        "online_freshness.py", tmp_path / "out.json", "--rate", "1000", "--probes", "4",
        "--every", "0.5", "--warm-up", "3000", "--workers", str(WORKERS),
    )  # fmt: skip
    assert figures["probes"] == 4 and figures["lost"] == 0
    assert 0 < figures["most"] < 60
    assert figures["restarts"] == 0
