# SPDX-License-Identifier: Apache-2.0
"""Seven tasks on real data, each cut once into training, validation and test rows.

The data sets are Census-Income (KDD), Online Retail and MovieLens latest-small. The division into
parts depends only on the files' content. Rows are divided by time, or drawn with a fixed seed.

* `census_income` and `census_marital`: the test rows are the published test file. A tenth of the
  training file is drawn for validation.
* `retail_quantity`: does a line of an invoice have more than 6 pieces? By time.
* `retail_before`: did this customer buy this item before? By time. A purchase at the same time does
  not count as an earlier purchase.
* `retail_again`: does this customer buy this item again within 30 days? By time. Rows from the last
  30 days before each cut are left out, because their labels are not known at the cut.
* `movielens_random` and `movielens_time`: is the rating at least 4?

Cancellations, and lines without a customer or without a positive quantity, are removed from Online
Retail. A cut by time puts rows of equal time into the same part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.census_income.schema import COLUMNS, FILES, category_columns

__all__ = ["TASKS", "Parts", "Task", "retail"]

LABEL = "label"
TIME = "time"
_DAYS = 30
_HELD = 0.1  # share of the rows for validation, and for tests


@dataclass(frozen=True)
class Parts:
    """Rows of a task. The columns are the features, the time if there is one, and the label.

    Attributes:
        train: rows to learn from.
        valid: rows for choosing settings and for early stopping.
        test: rows for the final scores; no setting was chosen on these rows.
        by_time: True if the parts follow each other in time.
    """

    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    by_time: bool = True


@dataclass(frozen=True)
class Task:
    """A task: predict a binary label of a data set.

    Attributes:
        name: name of the task, such as `census_income`.
        cut: function that reads the data sets' directory and returns the parts.
    """

    name: str
    cut: Callable[[Path], Parts]


def _census(task: str) -> Callable[[Path], Parts]:
    label, positive = {
        "income": ("income_50k", "50000+."),
        "marital": ("marital_stat", "Never married"),
    }[task]
    tasks = ("income",) if task == "income" else ("income", "never_married")
    names = set(category_columns(tasks))
    numbers = {"age", "wage_per_hour", "capital_gains", "capital_losses", "stock_dividends"}
    numbers |= {"num_emp", "weeks_worked"}

    def read(path: Path) -> pd.DataFrame:
        rows = pd.read_csv(
            path, header=None, names=list(COLUMNS), skipinitialspace=True, keep_default_na=False
        )
        features = [name for name in COLUMNS if name in names | numbers and name != label]
        made = rows[features].copy()
        for name in names:
            made[name] = made[name].astype(str).str.strip()
        made[LABEL] = (rows[label].str.strip() == positive).astype(np.int8)
        return made

    def cut(data: Path) -> Parts:
        directory = data / "census-income-kdd"
        rows = read(directory / FILES["train"])
        is_valid = _drawn(len(rows), _HELD)
        return Parts(rows[~is_valid], rows[is_valid], read(directory / FILES["test"]), False)

    return cut


def _csv(path: Path) -> Path:
    """Return the path of a CSV file, which may be compressed."""
    plain = path.with_name(f"{path.name}.csv")
    return plain if plain.exists() else path.with_name(f"{path.name}.csv.gz")


def retail(data: Path) -> pd.DataFrame:
    """Return the lines that name a customer, in the order of time, without cancellations."""
    rows = pd.read_csv(
        _csv(data / "online-retail" / "online_retail"),
        dtype={"InvoiceNo": str, "StockCode": str, "CustomerID": str},
        parse_dates=["InvoiceDate"],
    )
    sold = ~rows.InvoiceNo.str.startswith("C") & rows.CustomerID.notna() & (rows.Quantity > 0)
    rows = rows[sold].sort_values("InvoiceDate", kind="stable").reset_index(drop=True)
    return rows.rename(columns={"InvoiceDate": TIME})


_RETAIL = ["StockCode", "Description", "CustomerID", "Country", "UnitPrice", TIME]


def _quantity(data: Path) -> Parts:
    rows = retail(data)
    rows[LABEL] = (rows.Quantity > 6).astype(np.int8)
    return _by_time(rows[[*_RETAIL, LABEL]])


def _before(data: Path) -> Parts:
    rows = retail(data)
    first = rows.groupby(["CustomerID", "StockCode"])[TIME].transform("min")
    rows[LABEL] = (first < rows[TIME]).astype(np.int8)
    return _by_time(rows[[*_RETAIL, LABEL]])


def _again(data: Path) -> Parts:
    rows = retail(data)
    times = rows[["CustomerID", "StockCode", TIME]].drop_duplicates()  # ordered by time
    times["next"] = times.groupby(["CustomerID", "StockCode"])[TIME].shift(-1)
    rows = rows.merge(times, "left", ["CustomerID", "StockCode", TIME])
    window = pd.Timedelta(days=_DAYS)
    rows[LABEL] = (rows.next - rows[TIME] <= window).astype(np.int8)
    rows = rows[[*_RETAIL, "Quantity", LABEL]]
    known = rows[rows[TIME] <= rows[TIME].iloc[-1] - window]
    begin_test = _last_time(known, 1 - _HELD)
    early = known[known[TIME] <= begin_test - window]
    begin_valid = _last_time(early, 1 - _HELD)
    return Parts(
        early[early[TIME] <= begin_valid - window],
        early[early[TIME] > begin_valid],
        known[known[TIME] > begin_test],
    )


def _movielens(data: Path) -> pd.DataFrame:
    directory = data / "movielens-latest-small"
    ratings, movies = (pd.read_csv(_csv(directory / name)) for name in ("ratings", "movies"))
    movies["year"] = movies.title.str.extract(r"\((\d{4})\)\s*$")[0].astype(float)
    rows = ratings.merge(movies, "left", "movieId")
    rows = rows.sort_values("timestamp", kind="stable").reset_index(drop=True)
    return pd.DataFrame(
        {
            "userId": rows.userId.astype(str),
            "movieId": rows.movieId.astype(str),
            "genres": rows.genres,
            "year": rows.year,
            TIME: pd.to_datetime(rows.timestamp, unit="s"),
            LABEL: (rows.rating >= 4).astype(np.int8),
        }
    )


def _movielens_time(data: Path) -> Parts:
    return _by_time(_movielens(data))


def _movielens_random(data: Path) -> Parts:
    rows = _movielens(data)
    test = _drawn(len(rows), 0.2, seed=1)
    is_valid = _drawn(len(rows), _HELD)
    return Parts(rows[~test & ~is_valid], rows[~test & is_valid], rows[test], by_time=False)


def _drawn(rows: int, share: float, seed: int = 0) -> np.ndarray:
    """Return a random mask that selects each row with the probability `share`."""
    mask: np.ndarray = np.random.default_rng(seed).random(rows) < share
    return mask


def _last_time(rows: pd.DataFrame, share: float) -> pd.Timestamp:
    """Return the time of the row with the index `int(share * len(rows))`."""
    return rows[TIME].iloc[int(len(rows) * share)]


def _by_time(rows: pd.DataFrame) -> Parts:
    begin_test, begin_valid = _last_time(rows, 1 - _HELD), _last_time(rows, 1 - 2 * _HELD)
    early, late = rows[TIME] <= begin_valid, rows[TIME] > begin_test
    return Parts(rows[early], rows[~early & ~late], rows[late])


TASKS = {
    task.name: task
    for task in (
        Task("census_income", _census("income")),
        Task("census_marital", _census("marital")),
        Task("retail_quantity", _quantity),
        Task("retail_before", _before),
        Task("retail_again", _again),
        Task("movielens_random", _movielens_random),
        Task("movielens_time", _movielens_time),
    )
}
"""The tasks, by name."""
