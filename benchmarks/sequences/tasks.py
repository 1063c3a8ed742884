# SPDX-License-Identifier: Apache-2.0
"""Next-item tasks on real data, split by global time.

The data sets are Online Retail (invoices of a web shop, 2010-12 to 2011-12) and MovieLens
latest-small. Only the first event of each user and item counts, so a target is always new to its
user. Cancellations, and lines without a customer or without a positive quantity, are removed from
Online Retail.

* `retail_event`: each line of an invoice is a row. Lines of one invoice have the same time and keep
  the order of the file, so the history contains the earlier lines of the same invoice.
* `retail_invoice`: each invoice is a row. The row's targets are all items of the invoice that are
  new to the user, and the history ends before the invoice.
* `movielens`: each rating is a row.

A part consists of all events before a time, and the rows of the period after this time. The
catalogue of a part consists of the items of the part's events. Histories and targets contain only
items of the catalogue, because baselines cannot learn about other items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mindspore_rec.data import NextItems, next_items

__all__ = ["TASKS", "Events", "Part", "Task", "last_events", "part_of"]


@dataclass(frozen=True)
class Events:
    """Events: for each pair of user and item, only the first event.

    Attributes:
        user: int64 ``[E]``, number of each event's user, from 0.
        item: int64 ``[E]``, number of each event's item, from 0.
        time: ``[E]``, time of each event in seconds. The events of a data set are ordered by time;
            the events of a `Part` are ordered by user, then by time.
    """

    user: np.ndarray
    item: np.ndarray
    time: np.ndarray


@dataclass(frozen=True, eq=False)
class Part:
    """Events before a split time, and rows from the split time on.

    Attributes:
        events: events before the split time, ordered by user, then by time.
        rows: the rows, which contain only items of the catalogue.
        users: number of users, including users without an event before the split time.
        items: number of items in the catalogue.
        unknown: share of the targets that were left out because they are not in the catalogue.
    """

    events: Events
    rows: NextItems
    users: int
    items: int
    unknown: float


@dataclass(frozen=True)
class Task:
    """A data set, and the settings by which its events become rows.

    Attributes:
        read: function that reads the data sets' directory and returns the events.
        days: length of the validation period, in days; the test period has the same length.
        together: True if events with the same time form one row.
    """

    read: Callable[[Path], Events]
    days: float
    together: bool = False


def read_retail(data: Path, by_code: bool = False) -> Events:
    """Return the events of Online Retail.

    Args:
        data: directory of the data sets.
        by_code: if True, lines with the same time are ordered by stock code, not as in the file.
    """
    rows = pd.read_csv(
        _csv(data / "online-retail" / "online_retail"),
        dtype={"InvoiceNo": str, "StockCode": str, "CustomerID": str},
        parse_dates=["InvoiceDate"],
    )
    sold = ~rows.InvoiceNo.str.startswith("C") & rows.CustomerID.notna() & (rows.Quantity > 0)
    order = ["InvoiceDate", "StockCode"] if by_code else ["InvoiceDate"]
    rows = rows[sold].sort_values(order, kind="stable")
    seconds = rows.InvoiceDate.to_numpy().astype("datetime64[s]").astype(np.int64)
    return _first(rows.CustomerID, rows.StockCode, seconds)


def read_movielens(data: Path) -> Events:
    """Return the events of MovieLens, from `data` or its folder `movielens-latest-small`."""
    directory = data / "movielens-latest-small"
    rows = pd.read_csv(_csv((directory if directory.is_dir() else data) / "ratings"))
    rows = rows.sort_values("timestamp", kind="stable")
    return _first(rows.userId, rows.movieId, rows.timestamp.to_numpy())


def part_of(
    events: Events, begin: float, end: float, together: bool, most_rows: int, seed: int
) -> Part:
    """Return the events before `begin`, and the rows from `begin` until `end`.

    Args:
        events: all events.
        begin: earliest time that a row may have.
        end: end of the rows' period; the time of each row is less than `end`.
        together: True if events with the same time form one row.
        most_rows: maximum number of rows; if there are more rows, `most_rows` rows are drawn at
            random.
        seed: seed for the choice of the drawn rows.
    """
    before = events.time < begin
    catalogue, item = np.unique(events.item[before], return_inverse=True)
    number = np.full(int(events.item.max()) + 1, -1)
    number[catalogue] = np.arange(len(catalogue))
    in_period = (events.time >= begin) & (events.time < end)
    is_known = number[events.item] >= 0
    order = np.lexsort((events.time[before], events.user[before]))
    known = Events(events.user[before][order], item[order], events.time[before][order])
    user, item, time = (each[is_known] for each in (events.user, number[events.item], events.time))
    rows = next_items(user, item, time, begin, end, together=together)
    if len(rows.user) > most_rows:
        rng = np.random.default_rng(seed)
        rows = _some(rows, np.sort(rng.choice(len(rows.user), most_rows, replace=False)))
    unknown = float((~is_known)[in_period].mean()) if in_period.any() else 0.0
    return Part(known, rows, int(events.user.max()) + 1, len(catalogue), unknown)


def last_events(events: Events, least: int) -> Part:
    """Return the part for the leave-one-out task, with one row per user: the user's last event.

    Args:
        events: all events.
        least: minimum number of events per user; users with fewer events are left out.
    """
    has_rows = np.bincount(events.user)[events.user] >= least
    user, item, time = (each[has_rows] for each in (events.user, events.item, events.time))
    user = np.unique(user, return_inverse=True)[1]
    catalogue, item = np.unique(item, return_inverse=True)
    order = np.lexsort((time, user))
    user, item, time = user[order], item[order], time[order]
    every = next_items(user, item, time)
    is_last = np.append(every.user[1:] != every.user[:-1], True)
    before = np.append(user[1:] == user[:-1], False)
    rows = _some(every, np.flatnonzero(is_last))
    known = Events(user[before], item[before], time[before])
    return Part(known, rows, int(user.max()) + 1, len(catalogue), 0.0)


TASKS = {
    "retail_event": Task(read_retail, 30),
    "retail_invoice": Task(read_retail, 30, together=True),
    "movielens": Task(read_movielens, 365),
}
"""The tasks, by name."""


def _csv(path: Path) -> Path:
    """Return the path of a CSV file, which may be compressed."""
    plain = path.with_name(f"{path.name}.csv")
    return plain if plain.exists() else path.with_name(f"{path.name}.csv.gz")


def _first(user: Any, item: Any, time: np.ndarray) -> Events:
    """Return the first event of each pair of user and item."""
    users, items = pd.factorize(user)[0], pd.factorize(item)[0]
    is_first = ~pd.DataFrame({"user": users, "item": items}).duplicated().to_numpy()
    return Events(users[is_first], items[is_first], time[is_first])


def _some(rows: NextItems, chosen: np.ndarray) -> NextItems:
    """Return the rows at the positions `chosen`."""
    return NextItems(
        rows.user[chosen],
        rows.time[chosen],
        *_lists(rows.target, rows.target_offsets, chosen),
        *_lists(rows.history, rows.history_offsets, chosen),
    )


def _lists(values: np.ndarray, offsets: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the chosen lists of a ragged array, as values and offsets."""
    number = np.diff(offsets)[chosen]
    ends = np.concatenate([[0], np.cumsum(number)]).astype(np.int64)
    return values[np.repeat(offsets[:-1][chosen] - ends[:-1], number) + np.arange(ends[-1])], ends
