# SPDX-License-Identifier: Apache-2.0
"""Data that several examples are tried on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

GENRES = ("Comedy|War", "(no genres listed)", "Sci-Fi", "Film-Noir|Crime|Drama", "Children")


@pytest.fixture
def movielens(tmp_path: Path) -> Path:
    """Files in MovieLens's form: users who like what their number says, the last ones new."""
    rng = np.random.default_rng(0)
    rows, movies = 2500, 60
    user = np.arange(rows) // 25 + 1
    movie = rng.integers(1, movies + 1, rows)
    likes = rng.random(rows) < np.where(user % 2 == 0, 0.9, 0.2)
    ratings = {"userId": user, "movieId": movie, "rating": np.where(likes, 4.5, 2.0)}
    ratings["timestamp"] = 10**9 + 1000 * np.arange(rows)
    pd.DataFrame(ratings).to_csv(tmp_path / "ratings.csv", index=False)
    titles = [f"Movie {i}" + (f" ({1950 + i})" if i % 7 else "") for i in range(1, movies + 1)]
    named = {"movieId": np.arange(1, movies + 1), "title": titles}
    named["genres"] = [GENRES[i % len(GENRES)] for i in range(movies)]
    pd.DataFrame(named).to_csv(tmp_path / "movies.csv", index=False)
    return tmp_path
