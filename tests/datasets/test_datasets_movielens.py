# SPDX-License-Identifier: Apache-2.0
"""MovieLens: columns against the files' lines, splits, downloads from this machine."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from datasets.movielens import download, load
from datasets.movielens.data import FIELDS, GENRES, read_ratings
from mindspore_rec.common.columns.hashing import category_keys
from tests.support.missing import missing

MOVIES = """movieId,title,genres
1,Toy Story (1995),Adventure|Animation|Children|Comedy|Fantasy
2,"Heat, The (2013)",Action|Comedy|Crime
3,Nameless,(no genres listed)
4,Alien (1979) ,Horror|Sci-Fi
"""


@pytest.fixture
def small(tmp_path) -> Path:
    """60 ratings of 4 movies, later lines earlier in time."""
    rng = np.random.default_rng(0)
    lines = ["userId,movieId,rating,timestamp"]
    for k in range(60):
        lines.append(f"{k // 4 + 1},{k % 4 + 1},{rng.integers(1, 11) / 2},{10_000 - k}")
    (tmp_path / "ratings.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "movies.csv").write_text(MOVIES)
    return tmp_path


def test_columns_are_what_the_files_say(small):
    data = load(small, split="time", test=0.5)
    table = read_ratings(small)
    assert table["timestamp"].is_monotonic_increasing
    both = [np.concatenate([getattr(part, name) for part in (data.train, data.test)])
            for name in ("ids", "dense", "label", "user", "time")]  # fmt: skip
    ids, dense, label, user, time = both
    np.testing.assert_array_equal(time, table["timestamp"])
    np.testing.assert_array_equal(user, table["userId"])
    np.testing.assert_array_equal(label[:, 0], table["rating"] >= 4)
    assert 0 < label.mean() < 1
    movie = table["movieId"].to_numpy()
    years = category_keys("year", ["1995", "2013", None, "1979"])
    np.testing.assert_array_equal(ids[:, FIELDS.index("year")], years[movie - 1])
    np.testing.assert_array_equal(ids[:, FIELDS.index("movie")], category_keys("movie", movie))
    np.testing.assert_array_equal(ids[:, FIELDS.index("user")], category_keys("user", user))
    of_genre = {genre: {2} for genre in ("Action", "Crime")} | {"Comedy": {1, 2}, "Horror": {4}}
    for genre, movies in of_genre.items():
        np.testing.assert_array_equal(dense[:, GENRES.index(genre)], np.isin(movie, list(movies)))
    assert not dense[movie == 3].any()


def test_split_by_time_trains_on_what_was_before(small):
    data = load(small, split="time", test=0.25, validation=0.2)
    assert (len(data.train), len(data.validation), len(data.test)) == (36, 9, 15)
    assert data.train.time.max() <= data.validation.time.min()
    assert data.validation.time.max() <= data.test.time.min()


def test_random_split_is_a_function_of_its_seed(small):
    parts = load(small, test=0.3, validation=0.3, seed=1)
    again = load(small, test=0.3, validation=0.3, seed=1)
    other = load(small, test=0.3, validation=0.3, seed=2)
    every = [part.time for part in (parts.train, parts.validation, parts.test)]
    assert sorted(np.concatenate(every)) == list(range(10_000 - 59, 10_001))
    np.testing.assert_array_equal(parts.test.time, again.test.time)
    assert set(parts.test.time) != set(other.test.time)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "user"}, "split"),
        ({"test": 0.0}, "test"),
        ({"test": 1.0}, "test"),
        ({"validation": 1.0}, "validation"),
        ({"test": 0.999, "split": "time"}, "leave rows"),
    ],
)
def test_arguments_out_of_range(small, arguments, message):
    with pytest.raises(ValueError, match=message):
        load(small, **arguments)


def test_files_that_are_refused(small):
    (small / "movies.csv").write_text("".join(MOVIES.splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match="movie 2 has ratings"):
        load(small)
    (small / "movies.csv").write_text("id,name\n1,x\n")
    with pytest.raises(ValueError, match="must have rows of the columns"):
        load(small)
    (small / "movies.csv").unlink()
    with pytest.raises(ValueError, match="download"):
        load(small)


def test_download_from_this_machine(small, tmp_path, capsys):
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("ratings.csv", "movies.csv"):
            packed.write(small / name, f"ml-latest-small/{name}")
        packed.writestr("ml-latest-small/README.txt", "terms")
        packed.writestr("ml-latest-small/../../evil.csv", "x")
    out = tmp_path / "out"
    assert download.main(["--from-local", str(archive), "--output", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {
        "ml-latest-small.zip", "ratings.csv", "movies.csv", "README.txt"
    }  # fmt: skip
    assert len(load(out).train) + len(load(out).test) == 60

    broken = tmp_path / "broken.zip"
    broken.write_bytes(archive.read_bytes()[:-40])
    assert download.main(["--from-local", str(broken), "--output", str(tmp_path / "no")]) == 1
    assert "not a whole zip archive" in capsys.readouterr().err
    assert not (tmp_path / "no" / "ratings.csv").exists()


def test_compressed_files_read_the_same(small, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in ("ratings.csv", "movies.csv"):
        (packed / f"{name}.gz").write_bytes(gzip.compress((small / name).read_bytes()))
    np.testing.assert_array_equal(load(packed).test.ids, load(small).test.ids)


def test_the_real_files():
    if "MINDSPORE_REC_MOVIELENS_DIR" not in os.environ:
        missing("movielens", "MINDSPORE_REC_MOVIELENS_DIR does not name its files")
    data = load(os.environ["MINDSPORE_REC_MOVIELENS_DIR"])
    assert len(data.train) + len(data.test) == 100_836
    assert 0.19 < len(data.test) / 100_836 < 0.21
    labels = np.concatenate([data.train.label, data.test.label])
    assert int(labels.sum()) == 48_580
