# SPDX-License-Identifier: Apache-2.0
"""Generated ratings in MovieLens' file format; each user has a known taste."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["write_ratings"]

GENRES = ("Comedy|War", "(no genres listed)", "Sci-Fi", "Film-Noir|Crime|Drama", "Children")


def write_ratings(directory: Path, rows: int = 2500, movies: int = 60) -> None:
    """Write `ratings.csv` and `movies.csv`; the ratings of a user depend on the user's id.

    Each user has 25 consecutive ratings. If the ratings are split by time, almost all users of the
    later part have no ratings in the earlier part.

    Args:
        directory: directory in which `ratings.csv` and `movies.csv` are written.
        rows: number of ratings. Default: 2500.
        movies: number of distinct movies. Default: 60.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    user = np.arange(rows) // 25 + 1
    movie = rng.integers(1, movies + 1, rows)
    likes = rng.random(rows) < np.where(user % 2 == 0, 0.9, 0.2)
    ratings = {"userId": user, "movieId": movie, "rating": np.where(likes, 4.5, 2.0)}
    ratings["timestamp"] = 10**9 + 1000 * np.arange(rows)
    pd.DataFrame(ratings).to_csv(directory / "ratings.csv", index=False)
    titles = [f"Movie {i}" + (f" ({1950 + i})" if i % 7 else "") for i in range(1, movies + 1)]
    named = {"movieId": np.arange(1, movies + 1), "title": titles}
    named["genres"] = [GENRES[i % len(GENRES)] for i in range(movies)]
    pd.DataFrame(named).to_csv(directory / "movies.csv", index=False)
