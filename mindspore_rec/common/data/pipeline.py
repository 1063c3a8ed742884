# SPDX-License-Identifier: Apache-2.0
"""Read the items of a pass ahead in threads, and cut their rows into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.arrow_columns import join_rows
from mindspore_rec.common.data.order import Item

__all__ = ["Reading", "Slab", "cut", "read_items"]

_SLAB = 1 << 15  # rows of a random order that are gathered at a time


class Slab(NamedTuple):
    """Consecutive rows of an item.

    Args:
        item: number of the item.
        first: number of the item's rows before.
        rows: the rows.
        last: whether they are the last of the item.
    """

    item: int
    first: int
    rows: pa.RecordBatch
    last: bool


class Reading(NamedTuple):
    """How windows are read.

    Args:
        windows: parts of each window.
        fetch: returns a part as it is stored.
        decode: returns the rows of a part; gets the part and what `fetch` returned.
        in_order: whether `fetch` of a part is called in the order of the parts.
        permutation: returns the order of a window's rows, or None; gets window and number of rows.
        threads: number of threads that decode.
    """

    windows: Sequence[tuple[int, ...]]
    fetch: Callable[[int], Any]
    decode: Callable[[int, Any], pa.RecordBatch]
    in_order: Callable[[int], bool]
    permutation: Callable[[int, int], np.ndarray | None]
    threads: int


def read_items(reading: Reading, items: Sequence[Item], first: int, skip: int) -> Iterator[Slab]:
    """Yield the rows of items, from an item and a number of its rows on.

    The parts of the present window and of the next are decoded ahead, and at least as many parts as
    there are threads.
    """
    pool = ThreadPoolExecutor(reading.threads, "mindspore_rec-read")
    gathering = ThreadPoolExecutor(reading.threads, "mindspore_rec-gather")
    fetching = ThreadPoolExecutor(1, "mindspore_rec-fetch")

    def start(part: int) -> Future[pa.RecordBatch]:
        if not reading.in_order(part):
            return pool.submit(lambda: reading.decode(part, reading.fetch(part)))
        fetched = fetching.submit(reading.fetch, part)
        return pool.submit(lambda: reading.decode(part, fetched.result()))

    ahead: deque[tuple[int, list[Future[pa.RecordBatch]]]] = deque()
    waiting = iter(range(first, len(items)))

    def fill() -> None:
        while len(ahead) < 2 or sum(len(parts) for _, parts in ahead) <= reading.threads:
            number = next(waiting, None)
            if number is None:
                return
            ahead.append((number, [start(each) for each in reading.windows[items[number].window]]))

    try:
        fill()
        while ahead:
            number, parts = ahead.popleft()
            rows = join_rows([each.result() for each in parts])
            del parts
            fill()
            low, high = items[number].range_of(rows.num_rows)
            done = skip if number == first else 0
            order = reading.permutation(items[number].window, rows.num_rows)
            low += done
            if order is None:
                if low < high:
                    yield Slab(number, done, rows.slice(low, high - low), True)
                continue
            yield from _gathered(gathering, reading.threads, rows, order[low:high], number, done)
    finally:
        for each in (pool, gathering, fetching):
            each.shutdown(wait=False, cancel_futures=True)


def _gathered(
    pool: ThreadPoolExecutor,
    threads: int,
    rows: pa.RecordBatch,
    order: np.ndarray,
    number: int,
    done: int,
) -> Iterator[Slab]:
    slabs: deque[tuple[int, Future[pa.RecordBatch]]] = deque()
    at = 0
    while at < len(order) or slabs:
        while at < len(order) and len(slabs) <= threads:
            slabs.append((at, pool.submit(rows.take, pa.array(order[at : at + _SLAB]))))
            at += _SLAB
        begin, slab = slabs.popleft()
        yield Slab(number, done + begin, slab.result(), at >= len(order) and not slabs)


def cut(slabs: Iterator[Slab], size: int) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """Yield batches of `size` rows, the last with fewer, and the place after each.

    Returns:
        The rows; the number of the item after them, and the number of its rows that were used.
    """
    held: list[pa.RecordBatch] = []
    need, place = size, (0, 0)
    for slab in slabs:
        at, total = 0, slab.rows.num_rows
        while at < total:
            held.append(slab.rows.slice(at, need))
            at += held[-1].num_rows
            need -= held[-1].num_rows
            place = (slab.item, slab.first + at)
            if at >= total and slab.last:
                place = (slab.item + 1, 0)
            if not need:
                yield (join_rows(held), *place)
                held, need = [], size
    if held:
        yield (join_rows(held), *place)
