# SPDX-License-Identifier: Apache-2.0
"""FeatureWorker: sends features of raw rows, with no loss or duplicate after a kill."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from mindspore_rec.checks import check_number
from mindspore_rec.stream.channel import DataSender
from mindspore_rec.stream.dataset import StreamingDataset
from mindspore_rec.sync import sync

__all__ = ["FeatureWorker"]


class FeatureWorker:
    """Worker that sends the batches of a stream into a channel.

    At intervals it saves one state: the position in the stream, the transform's state, and the
    number of the next message. After a kill it resumes from the last state and repeats the later
    messages with the same numbers, of which receivers drop those they have.

    Args:
        dataset: the stream, with its transform.
        sender: sender with a `sender_name` that no other worker has.
        state_path: file of the state, in an existing directory. If it exists, the worker resumes
            from it.
        save_seconds: seconds between two saved states, at least 0 (default 1).

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or the state is of
            another stream or sender.

    Example:
        >>> import tempfile
        >>> import pyarrow as pa
        >>> from mindspore_rec.stream import ArrowFormat, DataReceiver, MemoryTopic, StopWhen
        >>> from mindspore_rec.stream import Category, FeaturePipeline, StreamSource, pack
        >>> raw, features = MemoryTopic(topic="raw"), MemoryTopic()
        >>> _ = raw.append(pack(pa.table({"user": ["ann", "bob"]})))
        >>> source = StreamSource(raw.client(), ArrowFormat(), 2, stop=StopWhen(batches=1))
        >>> dataset = StreamingDataset(source, FeaturePipeline({"ids": Category("user")}))
        >>> worker = FeatureWorker(
        ...     dataset, DataSender(features, sender_name="w"), tempfile.mkdtemp() + "/state"
        ... )
        >>> worker.run()
        1
        >>> with DataReceiver(features, batch_size=2) as receiver:
        ...     next(receiver)["ids"].type
        FixedSizeListType(fixed_size_list<item: int64>[1])
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        sender: DataSender,
        state_path: str | os.PathLike[str],
        save_seconds: float = 1.0,
    ) -> None:
        if not isinstance(dataset, StreamingDataset):
            raise TypeError(f"dataset must be a StreamingDataset, got {type(dataset).__name__}")
        if not isinstance(sender, DataSender):
            raise TypeError(f"sender must be a DataSender, got {type(sender).__name__}")
        self._save_seconds = check_number("save_seconds", save_seconds)
        if self._save_seconds < 0:
            raise ValueError(f"save_seconds must be at least 0, got {save_seconds}")
        dataset.source.add_partitions_when_saved()
        self._dataset = dataset
        self._sender = sender
        self._path = Path(state_path)
        if not self._path.parent.is_dir():
            raise ValueError(f"state_path must be in a directory that is there, got {state_path}")
        if self._path.exists():
            state = _read_state(self._path)
            sender.load_state_dict(state["sender"])
            dataset.load_state_dict(state["dataset"])

    def run(self) -> int:
        """Work until the stream ends; return the number of batches sent."""
        sent, saved = 0, time.monotonic()
        for batch in self._dataset:
            self._sender.send(dict(zip(self._dataset.column_names, batch, strict=True)))
            sent += 1
            if time.monotonic() >= saved + self._save_seconds:
                self.save()
                saved = time.monotonic()
        self.save()
        return sent

    def save(self) -> None:
        """Save the state, after all messages sent before are in the channel."""
        self._dataset.source.add_waiting_partitions()
        state = {"sender": self._sender.state_dict(), "dataset": self._dataset.state_dict()}
        beside = self._path.with_name(f".{self._path.name}.partial")
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)
        sync(self._path.parent)


def _read_state(path: Path) -> dict[str, Any]:
    """Return the state in a file.

    Raises:
        ValueError: it is not what `FeatureWorker.save` writes.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of the text's encoding, or of JSON
        raise ValueError(f"{path} is not the state of a feature worker: {error}") from error
    if not isinstance(state, dict) or not {"sender", "dataset"} <= state.keys():
        raise ValueError(f"{path} is not the state of a feature worker: it has {state!r:.80}")
    return state
