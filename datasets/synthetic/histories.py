# SPDX-License-Identifier: Apache-2.0
"""Rows with histories. A known formula determines the labels, so the best AUC is known.

A row has a user, an item, a number, and a history of 0 to 20 items with times. The label's log odds
are a constant of the item, plus a term of the history:

* `seen`: the term is 1.5 if the item is in the history, or else -1.5. In half of the rows
  with events, the item is drawn from the history.
* `interest`: the term is 0.9 n - 1.5; n is the number of events of the item's kind, but at most 4.
  The rows have no column of kinds, so a network must learn the kinds from the events. The events of
  a history are of at most three kinds.

The label does not depend on the columns `user`, `number` and `seen_at`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mindspore_rec import Schema
from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn, NumberColumn

__all__ = ["TASKS", "Planted", "draw", "schema_of"]

ITEMS = 300
KINDS = 20  # of items: the number modulo KINDS
USERS = 100
LONGEST = 20


@dataclass(frozen=True, eq=False)
class Planted:
    """Rows, and for each row the probability that its label is 1.

    Attributes:
        rows: columns `user`, `item`, `number`, `seen`, `seen_at` and `label`. Within a history, the
            times `seen_at` rise by 0 to 2**20 from one event to the next.
        probability: float64 `[rows]`.
    """

    rows: pa.Table
    probability: np.ndarray


def draw(task: str, rows: int, seed: int) -> Planted:
    """Draw random rows for a task.

    Args:
        task: name of the task, a key of `TASKS`.
        rows: number of rows.
        seed: seed of the random rows. The constants of the items are the same for all seeds.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, LONGEST + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    row = np.repeat(np.arange(rows), lengths)
    values, item, term = TASKS[task](rng, row, offsets)
    odds = np.random.default_rng(0).normal(0, 0.5, ITEMS)[item] + term
    probability = 1 / (1 + np.exp(-odds))
    apart = np.exp2(np.random.default_rng((seed, 1)).uniform(-2, 20, len(row))).astype(np.int64)
    times = np.cumsum(apart)
    columns = {
        "user": rng.integers(0, USERS, rows),
        "item": item,
        "number": rng.normal(0, 1, rows),
        "seen": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values)),
        "seen_at": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(times)),
        "label": (rng.random(rows) < probability).astype(np.int8),
    }
    return Planted(pa.table(columns), probability)


def schema_of(history: bool = True, embedding_dim: int = 8, times: bool = False) -> Schema:
    """Return the schema of the rows, with or without the history and the times of its events."""
    columns = [
        CategoryColumn("user", values="key"),
        CategoryColumn("item", values="key", table="items"),
        NumberColumn("number"),
    ]
    seen = HistoryColumn("seen", values="key", table="items", length=LONGEST)
    seen_at = HistoryColumn("seen_at", side_of="seen", values="int64")
    histories = [seen] * history + [seen_at] * times
    return Schema([*columns, *histories, LabelColumn("label")], embedding_dim=embedding_dim)


_Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]


def _seen(rng: np.random.Generator, row: np.ndarray, offsets: np.ndarray) -> _Drawn:
    """Draw events and items for `seen`, and the effects of the events on the log odds."""
    rows, lengths = len(offsets) - 1, np.diff(offsets)
    values = rng.integers(0, ITEMS, len(row))
    item = rng.integers(0, ITEMS, rows)
    again = (rng.random(rows) < 0.5) & (lengths > 0)
    item[again] = values[offsets[:-1][again] + rng.integers(0, lengths[again])]
    matches = np.bincount(row, values == item[row], rows)
    return values, item, np.where(matches > 0, 1.5, -1.5)


def _interest(rng: np.random.Generator, row: np.ndarray, offsets: np.ndarray) -> _Drawn:
    """Draw events and items for `interest`, and the effects of the events on the log odds."""
    rows = len(offsets) - 1
    liked = rng.integers(0, KINDS, (rows, 3))
    kind = liked[row, rng.integers(0, 3, len(row))]
    values = kind + KINDS * rng.integers(0, ITEMS // KINDS, len(row))
    candidate = np.where(rng.random(rows) < 0.5, liked[:, 0], rng.integers(0, KINDS, rows))
    item = candidate + KINDS * rng.integers(0, ITEMS // KINDS, rows)
    matches = np.bincount(row, kind == candidate[row], rows)
    return values, item, 0.9 * np.minimum(matches, 4) - 1.5


TASKS: dict[str, Callable[[np.random.Generator, np.ndarray, np.ndarray], _Drawn]] = {
    "seen": _seen,
    "interest": _interest,
}
"""By task, a function that draws events, items, and the effects of the events on the log odds."""
