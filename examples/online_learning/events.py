# SPDX-License-Identifier: Apache-2.0
"""Events that the example replays: ratings of MovieLens, or clicks of a drifting stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import pyarrow as pa

from datasets.movielens.data import GENRES, read_ratings
from datasets.synthetic.drifting import DriftingConfig, DriftingModel
from examples.online_learning.features import movielens_pipeline, synthetic_pipeline
from mindspore_rec.stream import FeaturePipeline

__all__ = ["Clicks", "EventSet", "Ratings", "open_events"]

_OWN = [("row", pa.int64()), ("sent", pa.float64())]


class EventSet(ABC):
    """Events in order. An event depends only on its index, so a producer can start at any event.

    Attributes:
        schema: schema of an event in the topic. `row` is the event's index, and `sent` is the
            event's sending time in seconds since 1970.
        ranges: dict from a column's name to the range of its legal values.
        count: number of events; None if endless.
        fields: number of categorical features that the pipeline makes.
        dense: number of dense features that the pipeline makes.
    """

    schema: pa.Schema
    ranges: dict[str, tuple[float, float]]
    count: int | None
    fields: int
    dense: int

    @abstractmethod
    def rows(self, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the columns of the events `start` to `stop - 1`, without `row` and `sent`."""

    @abstractmethod
    def pipeline(self) -> FeaturePipeline:
        """Return the pipeline that makes features of the events."""

    def seconds(self, start: int, stop: int) -> np.ndarray | None:
        """Return the times of the events in seconds since 1970; None if events have no times."""
        return None

    def batch(self, start: int, stop: int, sent: float) -> pa.RecordBatch:
        """Return the events as messages sent at the time `sent`."""
        own = [np.arange(start, stop), np.full(stop - start, sent)]
        columns = {**dict(zip(("row", "sent"), own, strict=True)), **self.rows(start, stop)}
        return pa.RecordBatch.from_pydict(columns, self.schema)


class Clicks(EventSet):
    """Clicks of a stream whose values appear and vanish; see `datasets.synthetic.drifting`.

    Args:
        seed: seed of the true weights and the rows (default 1).

    Example:
        >>> Clicks().batch(5, 7, sent=1.0).column("row").to_pylist()
        [5, 6]
    """

    def __init__(self, seed: int = 1) -> None:
        self._model = DriftingModel(DriftingConfig(), seed)
        self.fields, self.dense, self.count = self._model.config.fields, 0, None
        self._names = [f"C{f + 1}" for f in range(self.fields)]
        columns = [(name, pa.int64()) for name in self._names]
        self.schema = pa.schema([*_OWN, *columns, ("click", pa.int8())])
        self.ranges = {"click": (0, 1)}

    def rows(self, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the columns of the events `start` to `stop - 1`."""
        made = self._model.rows(start, stop)
        values = dict(zip(self._names, made.values.T, strict=True))
        return {**values, "click": made.clicks.astype(np.int8)}

    def pipeline(self) -> FeaturePipeline:
        """Return the pipeline that makes features of the events."""
        return synthetic_pipeline(self.fields)


class Ratings(EventSet):
    """Ratings of MovieLens in order of time.

    Args:
        directory: directory with `ratings.csv` and `movies.csv`, see `datasets.movielens.load`.

    Raises:
        ValueError: a file is missing, or is not a file of MovieLens.
    """

    def __init__(self, directory: Path) -> None:
        self._ratings = read_ratings(directory)
        self.fields, self.dense, self.count = 4, len(GENRES), len(self._ratings)
        integers = [(name, pa.int64()) for name in ("userId", "movieId", "timestamp")]
        texts = [(name, pa.string()) for name in ("title", "genres")]
        self.schema = pa.schema([*_OWN, *integers, ("rating", pa.float64()), *texts])
        self.ranges = {"rating": (0, 5)}

    def rows(self, start: int, stop: int) -> dict[str, pa.Array]:
        """Return the columns of the events `start` to `stop - 1`."""
        part = self._ratings.iloc[start:stop]
        return {name: pa.array(part[name]) for name in self.schema.names[len(_OWN) :]}

    def pipeline(self) -> FeaturePipeline:
        """Return the pipeline that makes features of the events."""
        return movielens_pipeline()

    def seconds(self, start: int, stop: int) -> np.ndarray | None:
        """Return the times of the ratings in seconds since 1970."""
        made: np.ndarray = self._ratings["timestamp"].to_numpy(np.float64)[start:stop]
        return made


def open_events(data: Path | None) -> EventSet:
    """Return MovieLens' events from directory `data`, or the drifting stream if `data` is None."""
    return Clicks() if data is None else Ratings(data)
