# SPDX-License-Identifier: Apache-2.0
"""Kills of trainer, feature worker and broker: the end is that of a run without any, bit for bit.

The setting `kills` (tests/support/settings.py) is how often the trainer is killed in the first
test.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.run.chain import entries
from tests.online.setting import (
    BATCHES,
    PARTITIONS,
    Setting,
    begin_filling,
    messages,
    uninterrupted,
)
from tests.stream.test_stream_kafka import read_all
from tests.support.kafka_broker import make_topic
from tests.support.lives import Lives, assert_same
from tests.support.nightly import NIGHTLY
from tests.support.settings import SETTINGS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

KILLS = SETTINGS.kills


def half_written(root: Path) -> bool:
    """Whether a checkpoint is being written, or was when the writer died."""
    return any(root.glob(".tmp-*"))


def test_kills_of_the_trainer(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, lives: Lives
) -> None:
    setting = Setting(broker.address, topic(PARTITIONS), tmp_path).fill()
    whole = uninterrupted(lives, setting)
    rng = np.random.default_rng(20)
    options = setting.trainer("killed")
    root = Path(options["root"])
    bad = sum(value == b"poison" for value in messages(BATCHES, 5))
    assert len(read_all(broker.address, f"{setting.topic}.dead")) == bad > 0
    goals = np.sort(rng.choice(np.arange(4, BATCHES - 1), KILLS, replace=False))
    in_saves, kills, began = 0, 0, []
    for i, goal in enumerate(goals):
        lives.begin(options)
        if lives.reach(int(goal)):
            deadline = time.monotonic() + 0.5
            while i % 2 and not half_written(root) and time.monotonic() < deadline:
                time.sleep(0.0002)
            time.sleep(rng.random() * (0.003 if i % 2 else 0.02))
        lives.kill()
        kills += lives.code == -9
        began.append(lives.restored)
        in_saves += half_written(root)
    lives.begin(options)
    assert lives.end() == 0
    print(f"{kills} kills, {in_saves} of them in a save; lives began at steps {began}")
    assert_same(setting.out("killed"), whole)
    assert kills >= 0.8 * KILLS and in_saves >= KILLS // 8 and began == sorted(began)
    assert len(read_all(broker.address, f"{setting.topic}.dead")) == bad
    assert [entry.step for entry in entries(root)][-1] == BATCHES


def test_kills_of_everyone(own_broker: Broker, tmp_path: Path, lives: Lives) -> None:
    """Feature worker, broker and trainer, while events arrive."""
    topic = make_topic(own_broker.address, PARTITIONS)
    setting = Setting(own_broker.address, topic, tmp_path)
    filling = begin_filling(setting, 0.03)
    trainer, worker = setting.trainer("killed", channel="killed"), setting.worker("killed")
    killed: list[str] = []
    kills = [(15, "worker"), (40, "broker"), (70, "trainer"), (95, "worker")]
    if NIGHTLY:
        kills += [(115, "broker"), (140, "trainer"), (155, "worker")]
    with Lives() as workers:
        workers.begin(worker)
        lives.begin(trainer)
        for step, victim in kills:
            if not lives.reach(step):  # a fast machine trained all of it while the broker was away
                assert lives.code == 0
                break
            killed.append(victim)
            if victim == "worker":
                workers.kill()
                workers.begin(worker)
            elif victim == "trainer":
                lives.kill()
                lives.begin(trainer)
            else:
                own_broker.kill()
                own_broker.start()
        assert lives.end() == 0
        assert workers.end() == 0
    assert set(killed) == {"worker", "broker", "trainer"}
    filling.join()
    lives.begin(setting.worker("whole"))
    assert lives.end() == 0
    whole = uninterrupted(lives, setting, channel="whole")
    assert_same(setting.out("killed"), whole, but="stream")  # it counts the duplicates
