# SPDX-License-Identifier: Apache-2.0
"""Feature pipelines of the events: keys, numbers, a label, and the sending time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from datasets.movielens.data import GENRES
from mindspore_rec import FeatureSpec
from mindspore_rec.stream import Category, Feature, FeaturePipeline, Number, to_record_batch

__all__ = ["GenreFlags", "channel_schema", "movielens_pipeline", "synthetic_pipeline"]

POSITIVE = 4.0  # a rating of so many stars or more
SENT = FeatureSpec("sent", is_timestamp=True)  # the trainer's watermark, and so the freshness shown


class GenreFlags(Feature):
    """Transform to one number per genre of MovieLens: 1 if the movie has the genre, 0 if not.

    Args:
        column: column of genre names, separated by '|'.

    Example:
        >>> flags = GenreFlags("genres").apply(pa.array(["Comedy|War"]), learn=False)
        >>> [genre for genre, flag in zip(GENRES, flags[0], strict=True) if flag]
        ['Comedy', 'War']
    """

    dtype = np.float32
    width = len(GENRES)

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the flags, `[B, genres]`."""
        marks = pc.binary_join_element_wise("|", values.cast(pa.string()), "|", "")
        flags = [pc.match_substring(marks, f"|{genre}|") for genre in GENRES]
        made = [each.to_numpy(zero_copy_only=False).astype(np.float32) for each in flags]
        return np.stack(made, axis=1)


def movielens_pipeline() -> FeaturePipeline:
    """Return the pipeline of ratings, with the keys and numbers of `datasets.movielens.load`."""
    return FeaturePipeline(
        {
            "sent": SENT,
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
    """Return the pipeline for the clicks in the drifting stream."""
    ids = [Category(f"C{f + 1}") for f in range(fields)]
    return FeaturePipeline({"sent": SENT, "ids": ids, "label": Number("click")})


def channel_schema(pipeline: FeaturePipeline, rows: pa.RecordBatch) -> pa.Schema:
    """Return the names and types of the columns in the worker's messages."""
    return to_record_batch(pipeline.with_times().apply(rows)).schema
