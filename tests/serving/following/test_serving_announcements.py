# SPDX-License-Identifier: Apache-2.0
"""News of checkpoints over a real Kafka broker."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from mindspore_rec import RecCheckpoint
from mindspore_rec.checkpoint import Publication
from mindspore_rec.serving import Predictor
from mindspore_rec.stream import AnnouncementReader, Announcer
from tests.serving.following.test_serving_chain import INPUTS, delta, hide
from tests.serving.serving_network import Marked, ids, train
from tests.support.http_server import Server
from tests.support.kafka_broker import need_broker

pytestmark = pytest.mark.kafka


@pytest.fixture
def news(broker, topic):  # noqa: F811
    """Broker and topic."""
    return broker.address, topic()


def test_training_announces_and_a_predictor_hears(tmp_path: Path, news, wait, graph_mode) -> None:
    heard: list[dict[str, Any]] = []
    reader = AnnouncementReader(news[0], news[1], heard.append)
    assert reader.listening.wait(120)
    announcer = Announcer(*news)
    publication = Publication(announce=announcer)
    train(tmp_path / "run", 3, net=Marked("serving.news"), publication=publication,
          every_steps=2, delta_every_steps=1)  # fmt: skip
    wait(lambda: len(heard) == 5)
    steps = [(each["kind"], each["step"]) for each in heard]
    assert sorted(steps) == [("delta", 1), ("delta", 2), ("delta", 3), ("full", 0), ("full", 2)]
    assert all(Path(each["path"]).is_dir() for each in heard)
    announcer.close()
    reader.close()


def test_news_beats_polling(run: Path, news, wait, graph_mode) -> None:
    last = hide(delta(run, 6))
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=1000) as predictor:
        reader = AnnouncementReader(news[0], news[1], lambda _: predictor.wake())
        assert reader.listening.wait(120)
        announcer = Announcer(*news)
        announcer({"step": 5})
        time.sleep(0.5)
        assert predictor.status().version == 5
        last.rename(delta(run, 6))
        announcer({"step": 6})
        wait(lambda: predictor.status().version == 6, 120)
        announcer.close()
        reader.close()


def test_what_is_no_announcement_is_passed_over(news, wait, caplog) -> None:
    from kafka import KafkaProducer

    heard: list[dict[str, Any]] = []
    reader = AnnouncementReader(news[0], news[1], heard.append)
    assert reader.listening.wait(120)
    with caplog.at_level(logging.WARNING):
        producer = KafkaProducer(bootstrap_servers=news[0])
        for value in (b"", b"\xff", b"[1]", b'{"step": 1}'):
            producer.send(news[1], value)
        producer.close()
        wait(lambda: heard)
    assert heard == [{"step": 1}]
    assert sum("is no announcement" in each.message for each in caplog.records) == 3
    reader.close()


def test_training_goes_on_without_a_broker(tmp_path: Path, caplog, graph_mode) -> None:
    need_broker()
    options = {"bootstrap_timeout_ms": 500}
    announcer = Announcer("127.0.0.1:9", "nowhere", options)
    publication = Publication(announce=announcer)
    begin = time.monotonic()
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "run", 3, net=Marked("serving.no_news"), publication=publication,
              every_steps=9, delta_every_steps=1)  # fmt: skip
        assert time.monotonic() - begin < 30
        announcer.close()
    assert any("announcing to topic nowhere failed" in each.message for each in caplog.records)
    assert RecCheckpoint(tmp_path / "run", every_steps=1).directory.is_dir()


def test_server_listens(run: Path, news, wait) -> None:
    last = hide(delta(run, 6))
    with Server(
        run, "--network", "tests.serving.serving_network:Marked", "--input", INPUTS[0],
        "--poll-seconds", "1000", "--announcements", "/".join(news),
    ) as server:  # fmt: skip
        server.wait_ready()
        client = server.client()
        assert client.ask("/status")[1]["version"] == 5
        last.rename(delta(run, 6))
        announcer = Announcer(*news)

        def heard() -> bool:
            announcer({"step": 6})  # again: it may not listen yet
            return client.ask("/status")[1]["version"] == 6

        wait(heard)
        assert client.infer(ids())[1]["model_version"] == "6"
        announcer.close()
