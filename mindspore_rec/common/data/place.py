# SPDX-License-Identifier: Apache-2.0
"""Place: a position in the passes over the data, stored as JSON for any number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mindspore_rec.common.data.order import Division, Item, divided
from mindspore_rec.common.stream.worker_states import states_in

__all__ = ["Place", "Worker", "place_of"]

_LAST = 2**31  # greater than the number of any item


class Worker(NamedTuple):
    """Index of a worker, counted from 0, and the number of workers."""

    number: int
    workers: int


class Place(NamedTuple):
    """Position of a worker in a pass.

    Args:
        number: number of the pass.
        item: index of the item that the worker reads now or next. At the end of the pass, `item` is
            the number of all items.
        rows: number of rows already read from the item.
        ended: True if the worker has read all of its items.
        before: earlier divisions of the pass, one for each time that the number of workers changed.
    """

    number: int
    item: int = 0
    rows: int = 0
    ended: bool = False
    before: tuple[Division, ...] = ()

    def items(self, windows: int, worker: Worker) -> list[Item]:
        """Return all items that the worker reads in the pass."""
        items = [Item(each) for each in range(windows)]
        for division in self.before:
            items = division.rest(items)
        return divided(items, *worker)

    def state(self, worker: Worker, order: Any, data: str) -> dict[str, Any]:
        """Return the position as JSON values."""
        return {
            "pass": self.number,
            "item": self.item,
            "rows": self.rows,
            "ended": self.ended,
            "before": [[each.workers, [list(one) for one in each.places]] for each in self.before],
            "worker": list(worker),
            "order": list(order),
            "data": data,
        }


def place_of(state: Any, worker: Worker, order: Any, data: str) -> Place:
    """Return the position at which a worker continues, given the saved state.

    Args:
        state: result of `Place.state`, or the results of all workers joined by `join_states`.
        worker: the worker whose position is returned. If the number of workers has changed, the
            workers divide the remaining rows of the pass.
        order: description of the order in which rows are read. `state` must contain the same
            `order`.
        data: digest of the data. `state` must contain the same digest.

    Raises:
        TypeError: `state` is not a position.
        ValueError: the state was saved with another order or other data, or a worker's state is
            missing.
    """
    states = states_in(state) or [state]
    for each in states:
        _check(each, order, data)
    count = states[0]["worker"][1]
    known = {}
    # If the workers divide the rows of each batch, all workers are at the same place. Only a worker
    # that had no rows in the last batch may be at a later place.
    for each in sorted(states, key=_progress, reverse=True):
        known[each["worker"][0]] = each
    if any(each["worker"][1] != count for each in states):
        raise ValueError("state must have one number of workers in all of its parts")
    whole = sorted(known) == list(range(count))
    if not whole and (count != worker.workers or worker.number not in known):
        raise ValueError(
            f"state has the places of the workers {sorted(known)} of {count}, and worker "
            f"{worker.number} of {worker.workers} needs all {count}: join_states() joins "
            "them"
        )
    number = min(each["pass"] + bool(each["ended"]) for each in states)
    places = {index: _in_pass(each, number) for index, each in known.items()}
    if worker.workers == count:
        return places[worker.number]
    before = next((each.before for each in places.values() if each.before), ())
    if all(each == Place(number, before=before) for each in places.values()):
        return Place(number, before=before)
    now = Division(count, tuple((places[each].item, places[each].rows) for each in range(count)))
    return Place(number, before=(*before, now))


def _progress(state: Mapping[str, Any]) -> tuple[int, int, int]:
    return state["pass"] + bool(state["ended"]), state["item"], state["rows"]


def _check(state: Any, order: Any, data: str) -> None:
    names = {"pass", "item", "rows", "ended", "before", "worker", "order", "data"}
    if not isinstance(state, Mapping) or not names <= set(state):
        raise TypeError(f"state must be what state_dict() returned, got {state!r:.100}")
    for name, was, now in zip(order._fields, state["order"], order, strict=True):
        if was != now:
            raise ValueError(f"state was saved with {name}={was!r}, and the batches have {now!r}")
    if state["data"] != data:
        raise ValueError(
            "state was saved with other data: files, filter, split or sample have changed since"
        )


def _in_pass(state: Mapping[str, Any], number: int) -> Place:
    """Return a worker's position in the pass `number`, even if the worker is in another pass."""
    if state["pass"] < number:  # the end of a pass is the beginning of the next
        return Place(number)
    if state["pass"] > number:
        return Place(number, item=_LAST, ended=True)
    before = tuple(
        Division(workers, tuple((item, rows) for item, rows in places))
        for workers, places in state["before"]
    )
    return Place(number, state["item"], state["rows"], state["ended"], before)
