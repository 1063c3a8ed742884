# SPDX-License-Identifier: Apache-2.0
"""The state of a feature worker is one worker's, until it is closed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mindspore_rec.common.stream.worker import FeatureWorker
from mindspore_rec.stream import (
    ArrowFormat,
    DataSender,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)


@pytest.fixture
def raw() -> MemoryTopic:
    topic = MemoryTopic(topic="raw")
    topic.append(pack(pa.table({"x": [1, 2, 3]})))
    return topic


def worker(raw: MemoryTopic, channel: MemoryTopic, state: Path) -> FeatureWorker:
    source = StreamSource(raw.client(), ArrowFormat(), 3, stop=StopWhen(idle_seconds=0.1))
    return FeatureWorker(StreamingDataset(source), DataSender(channel, sender_name="w"), state)


def test_a_closed_worker_lets_another_work(raw: MemoryTopic, tmp_path: Path) -> None:
    channel, state = MemoryTopic(topic="features"), tmp_path / "state"
    first = worker(raw, channel, state)
    with pytest.raises(RuntimeError, match="another feature worker works with"):
        worker(raw, channel, state)
    first.close()
    first.close()
    with pytest.raises(RuntimeError, match="this worker has ended"):
        first.save()
    with worker(raw, channel, state) as second:
        assert second.run() == 1
    with pytest.raises(RuntimeError, match="this worker has ended"):
        second.run()
    with worker(raw, channel, state) as third:
        assert third.run() == 0
