# SPDX-License-Identifier: Apache-2.0
"""Rows for next-item prediction: a user's events before a time, and the items that came next."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["NextItems", "next_items"]


class NextItems(NamedTuple):
    """Rows with a user's history, and the items that came next.

    The rows are ordered by user, then by time. The targets of row b are
    ``target[target_offsets[b]:target_offsets[b + 1]]``; ``history_offsets`` divides the histories
    in the same way.

    Attributes:
        user: ``[B]``, the user of each row.
        time: ``[B]``, the time of each row's targets.
        target: ``[N]``, the items that came next: the items of the first row, then of the second
            row, and so on.
        target_offsets: int64 ``[B + 1]``: the targets of row i begin at index
            ``target_offsets[i]``.
        history: ``[M]``, the items before the targets, row after row; the oldest item of a row is
            first.
        history_offsets: int64 ``[B + 1]``: the history of row i begins at index
            ``history_offsets[i]``.
    """

    user: npt.NDArray[Any]
    time: npt.NDArray[Any]
    target: npt.NDArray[Any]
    target_offsets: npt.NDArray[np.int64]
    history: npt.NDArray[Any]
    history_offsets: npt.NDArray[np.int64]


def next_items(
    user: npt.ArrayLike,
    item: npt.ArrayLike,
    time: npt.ArrayLike,
    begin: Any = None,
    end: Any = None,
    *,
    together: bool = False,
    least: int = 1,
    most: int | None = None,
) -> NextItems:
    """Return a row for each event in a period of time, with the user's history before the event.

    To split events by global time, train on the events before a time, choose settings by the rows
    of the next month, and test on the rows after this month. A history contains all earlier events
    of the user, even events inside the period, because a server would know these events too. No row
    contains events that are later than the row's targets.

    Args:
        user: ``[E]``, the user of each event: numbers or texts.
        item: ``[E]``, the item of each event: numbers or texts.
        time: ``[E]``, the time of each event: numbers, `datetime64`, texts in ISO 8601, or times
            with a time zone, which become UTC. Events of a user with equal times keep their order.
        begin: time of the first event that gets a row. Default: None, which means the time of the
            first event.
        end: events at this time or later get no row. Default: None, which means that there is no
            end.
        together: True combines all events of a user with equal times, such as the items of an
            invoice, into one row. All of these events are targets of the row, and the row's history
            contains only earlier events. Default: False, which means that each event gets a row. If
            two events have equal times, the history of the second event contains the first event.
        least: least number of events in a row's history; rows with fewer events are left out.
            Default: 1.
        most: number of the newest events that a history keeps. Default: None, which means all
            events.

    Raises:
        ValueError: the arrays differ in length, a time is NaN, NaT or unreadable, ``least`` is
            below 0, or ``most`` is below 1.

    Examples:
        >>> rows = next_items([7, 8, 7, 7], [1, 4, 2, 3], [10, 15, 20, 30], begin=15)
        >>> rows.user, rows.target, rows.history, rows.history_offsets
        (array([7, 7]), array([2, 3]), array([1, 1, 2]), array([0, 1, 3]))
        >>> rows = next_items([7, 7, 7], [1, 2, 3], [10, 20, 20], together=True)
        >>> rows.target, rows.target_offsets, rows.history
        (array([2, 3]), array([0, 2]), array([1]))
    """
    users, items, times = (np.asarray(each) for each in (user, item, time))
    if not users.shape == items.shape == times.shape or users.ndim != 1:
        raise ValueError(
            "user, item and time must be arrays [E] of one length, got the shapes "
            f"{users.shape}, {items.shape} and {times.shape}"
        )
    if times.dtype.kind not in "iufmM":
        try:  # times with a time zone are objects
            times = pd.to_datetime(times, format="ISO8601", utc=True)
            times = times.tz_localize(None).to_numpy()
        except (TypeError, ValueError) as error:
            raise ValueError(f"time must be numbers or times, got {times.dtype}") from error
    if times.dtype.kind in "fmM" and (times != times).any():
        raise ValueError(f"time must not be NaN, got one at event {int(np.argmax(times != times))}")
    if least < 0 or (most is not None and most < 1):
        raise ValueError(f"least must be at least 0 and most at least 1, got {least} and {most}")
    order = np.lexsort((times, users))
    users, items, times = users[order], items[order], times[order]
    is_first = _differs(users)
    begins_row = is_first | _differs(times) if together else np.ones(len(users), bool)
    row_begin = np.flatnonzero(begins_row)
    row_end = np.append(row_begin[1:], len(users))[: len(row_begin)]
    of_user = np.flatnonzero(is_first)[np.cumsum(is_first) - 1][row_begin]
    has_row = row_begin - of_user >= least
    if begin is not None:
        has_row &= times[row_begin] >= begin
    if end is not None:
        has_row &= times[row_begin] < end
    row_begin, row_end, of_user = row_begin[has_row], row_end[has_row], of_user[has_row]
    if most is not None:
        of_user = np.maximum(of_user, row_begin - most)
    return NextItems(
        users[row_begin],
        times[row_begin],
        *_ranges(items, row_begin, row_end),
        *_ranges(items, of_user, row_begin),
    )


def _differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return bools: True for the first value, and for values that differ from the value before."""
    differs = np.ones(len(values), bool)
    differs[1:] = values[1:] != values[:-1]
    return differs


def _ranges(
    values: npt.NDArray[Any], begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return ``values[begin[i]:end[i]]`` for all i, concatenated, and the offset of each range."""
    offsets = np.zeros(len(begin) + 1, np.int64)
    np.cumsum(end - begin, out=offsets[1:])
    place = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], end - begin)
    return values[place], offsets
