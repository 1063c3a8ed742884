# SPDX-License-Identifier: Apache-2.0
"""Read the items of a pass ahead in threads, and cut the rows into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import join_rows, one_array
from mindspore_rec.common.data.file_rows import POOL
from mindspore_rec.common.data.order import Item, PassOrder

__all__ = ["Reading", "Slab", "cut", "read_items"]

_MOST_AHEAD = 2_000_000  # rows


class Slab(NamedTuple):
    """Consecutive rows of an item.

    Args:
        item: index of the item that contains the rows.
        first: index, within the item, of the first row in `rows`.
        rows: the rows.
        last: True if these rows are the last of the item.
    """

    item: int
    first: int
    rows: pa.RecordBatch
    last: bool


class Reading(NamedTuple):
    """Settings for reading windows.

    Args:
        order: order in which a pass reads rows.
        fetch: function that returns the stored bytes or rows of a part. `decode` gets the result.
        decode: function that returns the rows of a part, given the part's number and the result of
            `fetch`.
        in_order: function that returns True for a part that must be fetched in the order of the
            parts.
        size: function that returns the approximate number of rows of a part.
        threads: number of threads that decode rows.
    """

    order: PassOrder
    fetch: Callable[[int], Any]
    decode: Callable[[int, Any], list[pa.RecordBatch]]
    in_order: Callable[[int], bool]
    size: Callable[[int], int]
    threads: int


def read_items(reading: Reading, items: Sequence[Item], first: int, skip: int) -> Iterator[Slab]:
    """Yield the rows of `items[first:]`, without the first `skip` rows of `items[first]`.

    Threads read the next two windows in advance. More windows are read in advance until the waiting
    windows contain more parts than there are threads, or contain two million rows.
    """
    pool = ThreadPoolExecutor(reading.threads, "mindspore_rec-read")
    joining = ThreadPoolExecutor(reading.threads, "mindspore_rec-join")
    fetching = ThreadPoolExecutor(1, "mindspore_rec-fetch")

    def decoded(parts: Sequence[int], fetched: Iterable[Any]) -> list[pa.RecordBatch]:
        pairs = zip(parts, fetched, strict=True)
        return [rows for part, each in pairs for rows in reading.decode(part, each)]

    def start(parts: Sequence[int]) -> Future[list[pa.RecordBatch]]:
        if not any(map(reading.in_order, parts)):
            return pool.submit(lambda: decoded(parts, map(reading.fetch, parts)))
        fetched = fetching.submit(lambda: list(map(reading.fetch, parts)))
        return pool.submit(lambda: decoded(parts, fetched.result()))

    def joined(number: int, parts: list[Future[list[pa.RecordBatch]]]) -> list[Slab]:
        chunks = [rows for each in parts for rows in each.result() if rows.num_rows]
        parts.clear()
        total = sum(each.num_rows for each in chunks)
        low, high = items[number].range_of(total)
        done = skip if number == first else 0
        low += done
        if low >= high:
            return []
        order = reading.order.permutation(items[number].window, total)
        if order is None:
            return list(_in_order(chunks, low, high, number, done))
        return [Slab(number, done, _gathered(chunks, order[low:high]), True)]

    ahead: deque[tuple[int, int, Future[list[Slab]]]] = deque()  # numbers of parts and of rows
    waiting = iter(range(first, len(items)))

    def fill() -> None:
        while len(ahead) < 2 or (
            sum(parts for parts, _, _ in ahead) <= reading.threads
            and sum(rows for _, rows, _ in ahead) < _MOST_AHEAD
        ):
            number = next(waiting, None)
            if number is None:
                return
            window = reading.order.windows[items[number].window]
            # Give each task several parts of a window, because one task for each small part costs
            # too much time.
            size = -(-len(window) // reading.threads)
            parts = [start(window[at : at + size]) for at in range(0, len(window), size)]
            rows = sum(map(reading.size, window))
            ahead.append((len(parts), rows, joining.submit(joined, number, parts)))

    try:
        fill()
        while ahead:
            slabs = ahead.popleft()[2].result()
            fill()
            while slabs:
                yield slabs.pop(0)
    finally:
        for each in (pool, joining, fetching):
            each.shutdown(wait=False, cancel_futures=True)


def _in_order(
    chunks: Sequence[pa.RecordBatch], low: int, high: int, number: int, done: int
) -> Iterator[Slab]:
    """Join the chunks in order, and yield the rows `low` to `high` - 1."""
    at = 0  # number of the chunk's first row
    for rows in chunks:
        begin, end = max(low - at, 0), min(high - at, rows.num_rows)
        if begin < end:
            part = rows.slice(begin, end - begin)
            yield Slab(number, done + at + begin - low, part, at + end == high)
        at += rows.num_rows


def _gathered(chunks: Sequence[pa.RecordBatch], order: np.ndarray) -> pa.RecordBatch:
    """Return the rows of all chunks, in the order of the row indices in `order`.

    Copy one column at a time, so that the column stays in the cache.
    """
    indices = pa.array(order)
    arrays = []
    for place, field in enumerate(chunks[0].schema):
        parts = [each.column(place) for each in chunks]
        if pa.types.is_dictionary(field.type):
            whole = one_array(pa.chunked_array(parts))
        else:
            whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts, memory_pool=POOL)
        arrays.append(pc.take(whole, indices, boundscheck=False, memory_pool=POOL))
    return pa.RecordBatch.from_arrays(arrays, names=chunks[0].schema.names)


def cut(slabs: Iterator[Slab], size: int) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """Yield batches of `size` rows (the last batch may be smaller), and the place after each batch.

    Returns: Tuples of the batch's rows, the index of the item in which the next batch begins, and
        the number of rows of this item that come before the next batch.
    """
    pieces: list[pa.RecordBatch] = []
    need, place = size, (0, 0)
    for slab in slabs:
        at, total = 0, slab.rows.num_rows
        while at < total:
            pieces.append(slab.rows.slice(at, need))
            at += pieces[-1].num_rows
            need -= pieces[-1].num_rows
            place = (slab.item, slab.first + at)
            if at >= total and slab.last:
                place = (slab.item + 1, 0)
            if not need:
                yield (join_rows(pieces), *place)
                pieces, need = [], size
    if pieces:
        yield (join_rows(pieces), *place)
