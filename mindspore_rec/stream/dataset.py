# SPDX-License-Identifier: Apache-2.0
"""StreamingDataset: a stream as batches of arrays, for training."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.feature.arrow_columns import to_arrays
from mindspore_rec.stream.source import StreamSource

__all__ = ["StreamingDataset"]

_KEPT = 1024

Transform = Callable[[pa.RecordBatch], Mapping[str, np.ndarray]]


class StreamingDataset:
    """Batches of a stream as tuples of arrays, for `RecModel.online_train` and `FeatureBatches`.

    Its state is the stream's place and what the transform has learned, both as of one batch. A
    reader that is ahead of the training asks for the state after the batches that were trained:
    `state_dict(batches=...)`. `RecCheckpoint` does that where this object, or `FeatureBatches` of
    it, is what is trained on. It refuses what hides it, such as a
    `mindspore.dataset.GeneratorDataset` or a generator expression over it: nobody could tell how
    many of its batches were trained.

    Args:
        source: a `KafkaSource`, `DataReceiver` or other `StreamSource`.
        transform: from a record batch to columns by name, arrays of whole batches, the label last;
            a `FeaturePipeline` for example. One with `state_dict` and `load_state_dict` is part of
            the state. Default: the columns as they are, see `to_arrays`. A batch that it leaves
            without rows is passed over.

    Attributes:
        column_names: of a batch's arrays; empty before the first batch, if nothing tells.

    Raises:
        TypeError: `source` or `transform` is of the wrong type.

    Example:
        >>> from mindspore_rec.stream import DataReceiver, DataSender, MemoryTopic, StopWhen
        >>> topic = MemoryTopic()
        >>> ids, label = np.array([[1, 2], [3, 4]]), np.array([[0.0], [1.0]], np.float32)
        >>> DataSender(topic).send({"ids": ids, "label": label})
        >>> receiver = DataReceiver(topic, batch_size=2, stop=StopWhen(batches=1))
        >>> for ids, label in StreamingDataset(receiver):
        ...     ids.tolist(), label.tolist()
        ([[1, 2], [3, 4]], [[0.0], [1.0]])
    """

    def __init__(self, source: StreamSource, transform: Transform | None = None) -> None:
        if not isinstance(source, StreamSource):
            raise TypeError(f"source must be a StreamSource, got {type(source).__name__}")
        if transform is not None and not callable(transform):
            raise TypeError(f"transform must be callable, got {type(transform).__name__}")
        self.source = source
        self._transform: Any = transform if transform is not None else to_arrays
        self._learns = hasattr(self._transform, "state_dict")
        names = getattr(self._transform, "column_names", None)
        if transform is None and source.format.schema is not None:
            names = source.format.schema.names
        self.column_names: list[str] = list(names or ())
        self._batches = 0
        self._lock = threading.Lock()
        self._places: deque[tuple[int, int, Any]] = deque(maxlen=_KEPT)
        self._remember(source.state_dict()["batches"])

    def __iter__(self) -> StreamingDataset:
        return self

    def __next__(self) -> tuple[np.ndarray, ...]:
        while True:
            rows = next(self.source)
            taken = self.source.batches
            columns = self._transform(rows)
            self._batches += 1
            if not self.column_names:
                self.column_names = list(columns)
            made = tuple(columns[name] for name in self.column_names)
            if len(made[-1]):
                self._remember(taken)
                return made
            self._batches -= 1

    def _remember(self, taken: int) -> None:
        learned = self._transform.state_dict() if self._learns else None
        with self._lock:
            self._places.append((self._batches, taken, learned))

    @property
    def lag(self) -> int:
        """Messages in the topic that are not in a batch yet, as far as known."""
        return self.source.lag

    @property
    def stop_reason(self) -> str:
        """Why the stream ended, or nothing."""
        return self.source.stop_reason

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Where it is, as JSON values.

        Args:
            batches: as it was after so many batches in the stream's life. The last 1024 are known.
                Default: after the last one.

        Raises:
            ValueError: that state is not known.
        """
        with self._lock:
            places = list(self._places)
        found = [place for place in places if batches is None or place[0] == batches]
        if not found:
            raise ValueError(f"batches must be in [{places[0][0]}, {places[-1][0]}], got {batches}")
        number, taken, learned = found[-1]
        source = self.source.state_dict(batches=taken)
        return {"batches": number, "source": source, "transform": learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where that state was taken; before the first batch only.

        Raises:
            TypeError, ValueError: it is no state, or one of another stream or transform.
            RuntimeError: batches have been taken.
        """
        if not isinstance(state, Mapping) or not {"batches", "source", "transform"} <= set(state):
            raise TypeError(f"state must be what state_dict() returned, got {state!r:.100}")
        if self._learns != (state["transform"] is not None):
            raise ValueError("state must be of a stream with the same transform")
        self.source.load_state_dict(state["source"])
        if self._learns:
            self._transform.load_state_dict(state["transform"])
        self._batches = int(state["batches"])
        with self._lock:
            self._places.clear()
        self._remember(self.source.batches)

    def close(self) -> None:
        """Ends the reading; states can still be asked for."""
        self.source.close()

    def __enter__(self) -> StreamingDataset:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
