# SPDX-License-Identifier: Apache-2.0
"""A feature worker names the file of a state that it cannot read, and has changed nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mindspore_rec.stream import (
    ArrowFormat,
    Category,
    DataReceiver,
    DataSender,
    FeaturePipeline,
    FeatureWorker,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)


def worker(raw: MemoryTopic, features: MemoryTopic, state: Path) -> FeatureWorker:
    source = StreamSource(raw.client(), ArrowFormat(), 2, stop=StopWhen(batches=1))
    dataset = StreamingDataset(source, FeaturePipeline({"ids": Category("user")}))
    return FeatureWorker(dataset, DataSender(features, sender_name="w"), state)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"sender": {}}', b"\xff\xfe", b'{"dataset": {}}']
)
def test_a_file_that_is_no_state_is_named(tmp_path: Path, content: bytes) -> None:
    raw, features, state = MemoryTopic(topic="raw"), MemoryTopic(), tmp_path / "worker.json"
    raw.append(pack(pa.table({"user": ["ann", "bob"]})))
    state.write_bytes(content)
    with pytest.raises(ValueError, match=r"worker\.json is not the state of a feature worker: "):
        worker(raw, features, state)
    assert state.read_bytes() == content
    state.unlink()
    assert worker(raw, features, state).run() == 1
    with DataReceiver(features, batch_size=2) as receiver:
        assert next(receiver).num_rows == 2
