# SPDX-License-Identifier: Apache-2.0
"""Everything at once, killed at random moments: the end is that of a run without, bit for bit.

FeatureSpecs with strings, admission, eviction by event time, timestamps, host memory for a part of
the rows with the others on SSD, batches read ahead, a transform that learns, deltas, Kafka.
The setting `combination_kills` (tests/support/settings.py) is how often the trainer is killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.run.chain import entries
from mindspore_rec.stream import KafkaWriter
from tests.online.combined_trainer import BATCH, SCHEMA
from tests.online.setting import BEGIN, PARTITIONS, packed
from tests.support.lives import Lives, assert_same
from tests.support.settings import SETTINGS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

KILLS = SETTINGS.combination_kills
BATCHES = 160


def messages() -> list[bytes]:
    """Events of users and items that come and go, more than host memory holds, some late."""
    rng = np.random.default_rng(8)
    rows = BATCHES * BATCH
    born = np.arange(rows) // 8  # ids drift: many are never seen again
    user = born + rng.zipf(1.2, rows).clip(0, 300)
    item = born // 2 + rng.zipf(1.2, rows).clip(0, 400)
    columns = {
        "user": [f"u{i}" for i in user],
        "item": item,
        "views": rng.geometric(0.01, rows),
        "price": rng.exponential(size=rows).cumsum(),
        "t": BEGIN + np.arange(rows) - rng.integers(0, 90, rows) * (rng.random(rows) < 0.1),
        "click": (rng.random(rows) < (user % 7 + 1) / 9).astype(np.int8),
    }
    return packed(pa.table(columns, SCHEMA), rng)


@pytest.fixture
def trainer(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Any]:
    """Makes the options of trainers of one topic of events."""
    name = topic(PARTITIONS)
    writer = KafkaWriter(broker.address)
    for i, value in enumerate(messages()):
        writer.send(name, i % PARTITIONS, value)
    writer.close()

    def options(directory: str, prefetch: int = 2) -> dict[str, Any]:
        return {
            "role": "combined",
            "brokers": broker.address,
            "topic": name,
            "root": str(tmp_path / directory),
            "out": str(tmp_path / f"{directory}.npz"),
            "batches": BATCHES,
            "every_steps": 12,
            "delta_every_steps": 3,
            "prefetch": prefetch,
        }

    return options


def run(lives: Lives, options: dict[str, Any]) -> Path:
    """Train to the end; return the file with the final state."""
    lives.begin(options)
    assert lives.end() == 0
    return Path(options["out"])


def test_kills_with_features_event_time_tiers_and_prefetch(
    trainer: Callable[..., Any], lives: Lives
) -> None:
    whole = run(lives, trainer("whole"))
    rng = np.random.default_rng(21)
    options = trainer("killed")
    goals = np.sort(rng.choice(np.arange(2, BATCHES - 1), KILLS, replace=False))
    kills, began = 0, []
    for goal in goals:
        lives.begin(options)
        if lives.reach(int(goal)):
            time.sleep(rng.random() * 0.02)
        lives.kill()
        kills += lives.code == -9
        began.append(lives.restored)
    killed = run(lives, options)
    print(f"{kills} kills; lives began at steps {began}")
    assert_same(killed, whole)
    assert kills >= 0.8 * KILLS and began == sorted(began) and began[-1] > 0
    assert [entry.step for entry in entries(Path(options["root"]))][-1] == BATCHES
    # What the run was to have: rows that go down and come up ahead, keys that wait, rows that age.
    for stats in json.loads(whole.with_suffix(".json").read_text()):
        assert stats["host_rows"] <= stats["host_capacity_rows"] < stats["rows"]
        assert stats["prefetched_rows"] > 0
        assert stats["evicted_by_age"] > 0
        assert stats["candidates"] > 0
        assert BEGIN + BATCHES * BATCH - 100 < stats["event_time"] < BEGIN + BATCHES * BATCH


def test_reading_ahead_changes_no_bit(trainer: Callable[..., Any], lives: Lives) -> None:
    """The event time of a step is that of its batch, not of the newest one that was read."""
    none, ahead = (run(lives, trainer(f"ahead{n}", prefetch=n)) for n in (0, 3))
    assert_same(ahead, none)
