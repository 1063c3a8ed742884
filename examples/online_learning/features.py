# SPDX-License-Identifier: Apache-2.0
"""What the feature worker makes of events: keys, numbers and a label, and when the event came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from datasets.movielens.data import GENRES
from mindspore_rec.stream import Category, Feature, FeaturePipeline, Number, to_record_batch

__all__ = ["GenreFlags", "SentPipeline", "movielens_pipeline", "synthetic_pipeline"]

POSITIVE = 4.0  # a rating of so many stars or more


class GenreFlags(Feature):
    """A number for each genre of MovieLens: 1 where the movie is of it, 0 where not.

    Args:
        column: names of genres with '|' between them.

    Example:
        >>> flags = GenreFlags("genres").apply(pa.array(["Comedy|War"]), learn=False)
        >>> [genre for genre, flag in zip(GENRES, flags[0], strict=True) if flag]
        ['Comedy', 'War']
    """

    dtype = np.float32
    width = len(GENRES)

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """The flags, `[B, genres]`."""
        marks = pc.binary_join_element_wise("|", values.cast(pa.string()), "|", "")
        flags = [pc.match_substring(marks, f"|{genre}|") for genre in GENRES]
        made = [each.to_numpy(zero_copy_only=False).astype(np.float32) for each in flags]
        return np.stack(made, axis=1)


def movielens_pipeline() -> FeaturePipeline:
    """Ratings: the same keys and numbers as `datasets.movielens.load` makes of the files."""
    return FeaturePipeline(
        {
            "ids": [
                Category("userId", field="user"),
                Category("movieId", field="movie"),
                Category("year"),
                Category("genres"),
            ],
            "dense": GenreFlags("genres"),
            "label": Number("liked"),
        },
        prepare=[_year_and_liked],
    )


def _year_and_liked(events: pd.DataFrame) -> pd.DataFrame:
    year = events["title"].str.extract(r"\((\d{4})\)\s*$")[0]
    return events.assign(year=year.astype(object), liked=(events["rating"] >= POSITIVE) * 1.0)


def synthetic_pipeline(fields: int) -> FeaturePipeline:
    """Clicks of the drifting stream."""
    ids = [Category(f"C{f + 1}") for f in range(fields)]
    return FeaturePipeline({"ids": ids, "label": Number("click")})


class SentPipeline:
    """A pipeline's arrays, with the time at which the producer sent each event in front of them.

    The trainer's watermark is made of it, and of that the freshness which the runner shows.

    Args:
        pipeline: makes the arrays.
    """

    def __init__(self, pipeline: FeaturePipeline) -> None:
        self._pipeline = pipeline
        self.column_names = ["sent", *pipeline.column_names]

    def schema(self, rows: pa.RecordBatch) -> pa.Schema:
        """Columns and types of what it makes of such events."""
        return to_record_batch({"sent": np.zeros(len(rows)), **self._pipeline.apply(rows)}).schema

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        """Arrays of the stream's next rows."""
        batch = to_record_batch(rows)
        sent = batch.column("sent").to_numpy(zero_copy_only=False)
        return {"sent": sent, **self._pipeline(batch)}

    def state_dict(self) -> dict[str, Any]:
        """What the pipeline has learned."""
        return self._pipeline.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self._pipeline.load_state_dict(state)
