# SPDX-License-Identifier: Apache-2.0
"""Topics in memory, filled, and streams of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.stream import (
    ArrowFormat,
    DataSender,
    MemoryTopic,
    StreamingDataset,
    StreamSource,
    pack,
)

__all__ = ["stream_of", "topic_of", "topic_of_messages", "topic_of_rows"]


def topic_of(messages: list[list[int]]) -> MemoryTopic:
    """Return a topic with messages of so many rows in each partition.

    A row is 1000 times the partition plus its number there.
    """
    topic = MemoryTopic(len(messages))
    for partition, sizes in enumerate(messages):
        row = 0
        for size in sizes:
            rows = 1000 * partition + np.arange(row, row + size)
            topic.append(pack(pa.table({"x": rows})), partition)
            row += size
    return topic


def topic_of_messages(
    messages: Iterable[bytes], partitions: int = 1, name: str = "memory"
) -> MemoryTopic:
    """Return a topic to whose partitions the messages have gone in turn."""
    topic = MemoryTopic(partitions, name)
    for number, message in enumerate(messages):
        topic.append(message, number % partitions)
    return topic


def topic_of_rows(
    rows: dict[str, np.ndarray], message_rows: int, name: str = "memory"
) -> MemoryTopic:
    """Return a topic to which a `DataSender` has sent the rows."""
    topic = MemoryTopic(topic=name)
    DataSender(topic, message_rows=message_rows).send(rows)
    return topic


def stream_of(topic: MemoryTopic, batch: int = 6, **options: Any) -> StreamingDataset:
    """Return the batches of a topic that `topic_of` made."""
    return StreamingDataset(StreamSource(topic.client(), ArrowFormat(), batch, **options))
