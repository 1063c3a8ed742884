# SPDX-License-Identifier: Apache-2.0
"""Topics in memory for tests of workers, and streams of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.stream import ArrowFormat, MemoryTopic, StreamingDataset, StreamSource, pack

__all__ = ["stream_of", "topic_of"]


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


def stream_of(topic: MemoryTopic, batch: int = 6, **options: Any) -> StreamingDataset:
    return StreamingDataset(StreamSource(topic.client(), ArrowFormat(), batch, **options))
