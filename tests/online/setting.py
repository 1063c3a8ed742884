# SPDX-License-Identifier: Apache-2.0
"""A topic of events and who works on it, for tests that kill them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.stream.kafka_client import KafkaWriter
from mindspore_rec.stream import pack
from tests.online.combined_trainer import BATCH, SCHEMA
from tests.support.lives import Lives

BATCHES = 200
BEGIN = 1.7e9  # of events
PARTITIONS = 2


def messages(batches: int, seed: int) -> list[bytes]:
    """Events of users and items that come and go, as whole batches, with a bad message now and
    then."""
    rng = np.random.default_rng(seed)
    rows = batches * BATCH
    born = np.arange(rows) // 40  # ids drift: some are never seen again
    user = born + rng.zipf(1.5, rows).clip(0, 60)
    item = born // 2 + rng.zipf(1.3, rows).clip(0, 200)
    columns = {
        "user": [f"u{i}" for i in user],
        "item": item,
        "views": rng.geometric(0.01, rows),
        "price": rng.exponential(size=rows).cumsum(),
        "t": BEGIN + np.arange(rows),
        "click": (rng.random(rows) < (user % 7 + 1) / 9).astype(np.int8),
    }
    return packed(pa.table(columns, SCHEMA), rng)


def packed(table: pa.Table, rng: np.random.Generator) -> list[bytes]:
    """Return the rows as messages of 20, with a bad message after some of them."""
    made = []
    for begin in range(0, len(table), 20):
        made.append(pack(table.slice(begin, 20)))
        if rng.random() < 0.05:
            made.append(b"poison")
    return made


class Setting:
    """A topic full of events, and trainers of it."""

    def __init__(self, brokers: str, topic: str, directory: Path) -> None:
        self.brokers, self.topic, self.directory = brokers, topic, directory
        self.batches = BATCHES

    def fill(self, pause: float = 0.0) -> Setting:
        writer = KafkaWriter(self.brokers)
        for i, value in enumerate(messages(self.batches, 5)):
            writer.send(self.topic, i % PARTITIONS, value)
            time.sleep(pause)
        writer.close()
        return self

    def trainer(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "role": "train",
            "brokers": self.brokers,
            "topic": self.topic,
            "root": str(self.directory / name),
            "out": str(self.out(name)),
            "batches": self.batches,
            "every_steps": 12,
            "delta_every_steps": 3,
            **more,
        }

    def worker(self, name: str) -> dict[str, Any]:
        return {
            "role": "work",
            "brokers": self.brokers,
            "topic": self.topic,
            "channel": name,
            "state": str(self.directory / f"{name}.state"),
            "until": BEGIN + self.batches * BATCH - 1,
        }

    def out(self, name: str) -> Path:
        return self.directory / f"{name}.npz"


def uninterrupted(lives: Lives, setting: Setting, **more: Any) -> Path:
    """What a trainer has at the end that nothing happens to."""
    lives.begin(setting.trainer("whole", **more))
    assert lives.end() == 0
    return setting.out("whole")


def begin_filling(setting: Setting, pause: float) -> threading.Thread:
    """Fills the topic meanwhile, with so many seconds between two messages."""
    filling = threading.Thread(target=setting.fill, args=(pause,), daemon=True)
    filling.start()
    return filling
