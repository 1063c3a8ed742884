# SPDX-License-Identifier: Apache-2.0
"""Read MovieLens as columns of keys, genres and labels; a rating of 4 or more is a positive label.

The source is https://grouplens.org/datasets/movielens/ (Harper and Konstan,
"The MovieLens Datasets: History and Context", ACM TiiS 5, 2015,
https://doi.org/10.1145/2827872).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.common.blocks import Batch, take_rows
from datasets.synthetic.counter import stream_words, uniform
from mindspore_rec import category_keys

__all__ = ["FIELDS", "GENRES", "SPLITS", "MovieLensData", "Split", "load", "read_ratings"]

FIELDS = ("user", "movie", "year", "genres")
"""Categorical features; `year` is the movie's release, and `genres` is one text of all genres."""

GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip
"""Numeric features: 1 if the movie is of the genre, 0 if not."""

SPLITS = ("random", "time")
POSITIVE = 4.0


@dataclass(frozen=True)
class Split:
    """Columns of a set of ratings; the ratings are in order of time.

    Args:
        ids: int64 [N, 4], one table key for each of `FIELDS`.
        dense: float32 [N, 19], 0 or 1 for each of `GENRES`.
        label: float32 [N, 1], 1 for a rating of at least 4.
        user: int64 [N], the user's number in the file, for metrics by user.
        time: int64 [N], seconds since 1970.
    """

    ids: np.ndarray
    dense: np.ndarray
    label: np.ndarray
    user: np.ndarray
    time: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def arrays(self) -> Batch:
        """Return the columns under the names of `datasets.common.batches`: ids, dense, label."""
        return {"ids": self.ids, "dense": self.dense, "label": self.label}

    def rows(self, chosen: np.ndarray) -> Split:
        """Return some of the rows, chosen by a mask or positions."""
        return Split(**take_rows(vars(self), np.arange(len(self))[chosen]))


@dataclass(frozen=True)
class MovieLensData:
    """Training, validation and test rows of MovieLens.

    Args:
        train: training rows.
        validation: validation rows, split from the training rows; empty if the share is 0.
        test: test rows.
    """

    train: Split
    validation: Split
    test: Split


def load(
    data_dir: str | os.PathLike[str],
    split: str = "random",
    test: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> MovieLensData:
    """Read ratings and movies, and split the ratings.

    Args:
        data_dir: directory with ``ratings.csv`` and ``movies.csv``, plain or gzip (``.csv.gz``).
        split: With 'random', each rating is a test row with probability ``test``, as in published
            comparisons of CTR models. With 'time', the latest ratings are the test rows, and
            ``test`` is the share of these rows in all ratings. In a split by time, many users and
            movies of the test rows are new, as in online serving.
        test: share of the ratings for testing, above 0 and below 1 (default 0.2).
        validation: share of the training rows for validation, in [0, 1) (default 0). Validation
            rows are split off like test rows, at random or by time.
        seed: seed of the random split (default 0); the split by time uses no seed.

    Returns:
        The rows of each part in order of time.

    Raises:
        ValueError: an argument is out of range, or a file is missing or is not MovieLens.

    Example:
        >>> data = load(os.environ["MINDSPORE_REC_MOVIELENS_DIR"])  # doctest: +SKIP
        >>> len(data.train), len(data.test)  # doctest: +SKIP
        (80783, 20053)
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
    if not 0 < test < 1:
        raise ValueError(f"test must be in (0, 1), got {test}")
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be in [0, 1), got {validation}")
    ratings = _encode(read_ratings(data_dir))
    training, tests = _parted(ratings, split, test, seed, "test")
    fitting, held_out = _parted(training, split, validation, seed, "validation")
    if not (len(fitting) and len(tests)):
        raise ValueError(f"test {test} and validation {validation} must leave rows to each part")
    return MovieLensData(fitting, held_out, tests)


def read_ratings(data_dir: str | os.PathLike[str]) -> pd.DataFrame:
    """Return every rating with its movie's title and genres, in order of time.

    Args:
        data_dir: directory with MovieLens' files, as in `load`.

    Returns:
        Columns userId, movieId, rating, timestamp, title, genres.

    Raises:
        ValueError: a file is missing or has wrong columns, or a rated movie is not in movies.csv.
    """
    ratings = _read(data_dir, "ratings", ["userId", "movieId", "rating", "timestamp"])
    movies = _read(data_dir, "movies", ["movieId", "title", "genres"])
    joined = ratings.merge(movies, on="movieId", how="left", validate="many_to_one")
    if joined["genres"].isna().any():
        missing = joined["movieId"][joined["genres"].isna()].iloc[0]
        raise ValueError(f"{data_dir}: movie {missing} has ratings but is not in movies.csv")
    return joined.sort_values(["timestamp", "userId", "movieId"], ignore_index=True)


def _read(data_dir: str | os.PathLike[str], name: str, columns: list[str]) -> pd.DataFrame:
    places = [Path(data_dir) / f"{name}{ending}" for ending in (".csv", ".csv.gz")]
    files = [place for place in places if place.is_file()]
    if not files:
        raise ValueError(f"{places[0]} is not there: see python -m datasets.movielens.download")
    try:
        table = pd.read_csv(files[0], na_filter=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{files[0]} is not a file of MovieLens: {error}") from error
    if list(table.columns) != columns or not len(table):
        raise ValueError(f"{files[0]} must have rows of the columns {columns}")
    return table


def _encode(ratings: pd.DataFrame) -> Split:
    # "Title (1995)"; a few titles have no year: then it is missing
    years = ratings["title"].str.extract(r"\((\d{4})\)\s*$")[0]
    keys = [
        category_keys("user", ratings["userId"].to_numpy(np.int64)),
        category_keys("movie", ratings["movieId"].to_numpy(np.int64)),
        category_keys("year", years),
        category_keys("genres", ratings["genres"]),
    ]
    marks = "|" + ratings["genres"] + "|"
    dense = [marks.str.contains(f"|{genre}|", regex=False) for genre in GENRES]
    return Split(
        ids=np.stack(keys, axis=1),
        dense=np.stack(dense, axis=1).astype(np.float32),
        label=(ratings[["rating"]].to_numpy() >= POSITIVE).astype(np.float32),
        user=ratings["userId"].to_numpy(np.int64),
        time=ratings["timestamp"].to_numpy(np.int64),
    )


def _parted(rows: Split, split: str, share: float, seed: int, part: str) -> tuple[Split, Split]:
    """Split off a share of the rows; return the remaining rows and the split-off rows."""
    if split == "time":
        last = np.arange(len(rows)) >= round(len(rows) * (1 - share))
    else:
        last = uniform(stream_words(seed, f"movielens.{part}", np.arange(len(rows)))) < share
    return rows.rows(~last), rows.rows(last)
