# SPDX-License-Identifier: Apache-2.0
"""Rows of which a schema keeps histories, in a table and in a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec import Schema
from mindspore_rec.feature import (
    CategoryColumn,
    GroupColumn,
    KeptHistoryColumn,
    LabelColumn,
    NumberColumn,
    TimeColumn,
)
from mindspore_rec.stream import ArrowFormat, MemoryTopic, StopWhen, StreamSource, pack

LENGTH = 4
OF = ("item", "ts", "price")


def schema_of(**options: Any) -> Schema:
    """Return a schema with a history of three columns."""
    columns = [
        CategoryColumn("item", table="items", values="whole"),
        NumberColumn("price"),
        GroupColumn("user", values="text"),
        TimeColumn("ts"),
        KeptHistoryColumn(
            "recent", of=("item", "ts", "price"), by="user", length=LENGTH, **options
        ),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=4)


def clicks(rows: int, seed: int = 0, first: int = 1000, users: int = 8) -> pa.Table:
    """Return rows in order of time, some of equal times, of which each has its own item."""
    rng = np.random.default_rng(seed)
    item = np.arange(rows) + rows * seed
    names = np.array([*(f"u{number}" for number in range(users)), None], object)
    return pa.table(
        {
            "item": item,
            "price": rng.normal(0, 9, rows).astype(np.float32),
            "user": pa.array(names[rng.integers(0, users + 1, rows)], pa.string()),
            "ts": first + np.arange(rows) // 3,
            "clicked": rng.integers(0, 2, rows),
        }
    )


def source_of(table: pa.Table, rows: int, batches: int) -> StreamSource:
    """Return a new stream of the rows, which ends after some batches."""
    topic = MemoryTopic(topic="clicks")
    for first in range(0, len(table), 40):
        topic.append(pack(table.slice(first, 40)))
    stop = StopWhen(batches=batches, idle_seconds=0.3)
    return StreamSource(topic.client(), ArrowFormat(), rows, stop=stop)
