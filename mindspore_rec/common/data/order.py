# SPDX-License-Identifier: Apache-2.0
"""The order of the rows in a pass, and the division of the rows among workers.

A pass is a list of windows. A window consists of some parts of the files. All rows of a window are
read together. If the order shuffles, the rows are permuted within their window. The order "near"
keeps the windows in the order of the files, and permutes rows only within blocks of a window.
Windows and permutations depend only on the seed and the number of the pass, not on the number of
workers. Workers divide the windows, or the rows of each window if there are few windows. After a
restart with another number of workers, the workers divide the remaining rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mindspore_rec.common.data.data_parts import FilePart

__all__ = ["Division", "Item", "Order", "PassOrder", "divided"]

_FEW = 8  # windows a worker, below which the rows of each window are divided


class Item(NamedTuple):
    """The part of a window's rows that one worker reads.

    Args:
        window: index of the window in the pass.
        cuts: selections, applied in order. A number k drops the first k rows. A pair (p, n) divides
            the remaining rows into n equal ranges and keeps range p, counted from 0.
    """

    window: int
    cuts: tuple[Any, ...] = ()

    def range_of(self, rows: int) -> tuple[int, int]:
        """Return the begin and the end of the item's rows in a window of `rows` rows.

        Example:
            >>> Item(0, ((1, 2), 10)).range_of(100)
            (60, 100)
        """
        low, high = 0, rows
        for cut in self.cuts:
            if isinstance(cut, int):
                low = min(low + cut, high)
            else:
                part, parts = cut
                low, high = (
                    low + (high - low) * part // parts,
                    low + (high - low) * (part + 1) // parts,
                )
        return low, high


class PassOrder(NamedTuple):
    """Order of the rows in one pass.

    Args:
        windows: the windows in the order of the pass; each window is a tuple of the numbers of its
            parts.
        permutation: function that returns the order of a window's rows, or None if the rows stay in
            their order. The function's arguments are the number of the window and the number of
            rows in the window. Threads may call the function with window numbers in any order.
    """

    windows: Sequence[tuple[int, ...]]
    permutation: Callable[[int, int], np.ndarray | None]


class Order(NamedTuple):
    """Order of the rows in each pass.

    `Rows.batches` also accepts an order that you define: a named tuple of JSON values with a method
    `of_pass`, which must return the same order for the same arguments. A saved position stores the
    JSON values, and can be loaded only by batches whose order has equal JSON values.

    Args:
        shuffle: True for a random order. Default: False.
        seed: seed of the order. Default: 0.
        buffer_rows: approximate number of rows of a window if `shuffle` is True. Default: 0.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.data import PassOrder, read
        >>> class LastPartFirst(NamedTuple):
        ...     def of_pass(self, parts, number, sequential):
        ...         windows = [(each,) for each in reversed(range(len(parts)))]
        ...         return PassOrder(windows, lambda window, rows: None)
        >>> rows = read(pa.table({"user": range(70_000)}))  # a part is 65,536 rows
        >>> list(rows.batches(2, order=LastPartFirst()))[0]["user"].to_pylist()
        [65536, 65537]
    """

    shuffle: bool = False
    seed: int = 0
    buffer_rows: int = 0

    def of_pass(
        self, parts: Sequence[FilePart], number: int, sequential: Callable[[int], bool]
    ) -> PassOrder:
        """Return the order of a pass.

        Args:
            parts: parts of the files; `part.rows` is the number of rows in the part, if known.
            number: number of the pass.
            sequential: function that takes the attribute `file` of a part, and returns True if the
                parts of this file should stay in their order.
        """
        if not self.shuffle:
            return PassOrder([(each,) for each in range(len(parts))], lambda window, rows: None)
        order = self._shuffled(parts, number, sequential)

        def permutation(window: int, rows: int) -> np.ndarray:
            return np.random.default_rng((self.seed, number, window)).permutation(rows)

        return PassOrder(_windows(parts, order, self.buffer_rows), permutation)

    def _shuffled(
        self, parts: Sequence[FilePart], number: int, sequential: Callable[[int], bool]
    ) -> list[int]:
        chains: list[list[int]] = []
        last = -1
        for each, (file, _) in enumerate(parts):
            if file == last and sequential(file):
                chains[-1].append(each)
            else:
                chains.append([each])
            last = file
        order = np.random.default_rng((self.seed, number)).permutation(len(chains))
        return [each for chain in order for each in chains[chain]]


class NearOrder(NamedTuple):
    """The order of the rows in the files, except that each block of successive rows is shuffled.

    Args:
        seed: seed of the order.
        buffer_rows: number of successive rows in a block.
    """

    seed: int
    buffer_rows: int

    def of_pass(
        self, parts: Sequence[FilePart], number: int, sequential: Callable[[int], bool]
    ) -> PassOrder:
        """Return the order of a pass, as `Order.of_pass` does."""

        def permutation(window: int, rows: int) -> np.ndarray:
            random = np.random.default_rng((self.seed, number, window))
            begins = range(0, max(rows, 1), self.buffer_rows)  # without rows, one block
            blocks = [np.arange(k, min(k + self.buffer_rows, rows)) for k in begins]
            return np.concatenate([random.permutation(each) for each in blocks])

        return PassOrder(_windows(parts, range(len(parts)), self.buffer_rows), permutation)


def _windows(
    parts: Sequence[FilePart], order: Sequence[int], buffer_rows: int
) -> list[tuple[int, ...]]:
    """Group parts into windows of at most `buffer_rows` rows; a larger part is a window alone."""
    windows: list[tuple[int, ...]] = []
    window: list[int] = []
    rows = 0
    for each in order:
        size = parts[each].part.size
        if window and rows + size > buffer_rows:
            windows.append(tuple(window))
            window, rows = [], 0
        window.append(each)
        rows += size
    return [*windows, tuple(window)] if window else windows


def divided(items: Sequence[Item], worker: int, workers: int) -> list[Item]:
    """Return one worker's share: whole items, or a range of each item if there are few items.

    Example:
        >>> divided([Item(0)], 1, 3)
        [Item(window=0, cuts=((1, 3),))]
    """
    if workers == 1:
        return list(items)
    if len(items) >= _FEW * workers:
        return list(items[worker::workers])
    return [each._replace(cuts=(*each.cuts, (worker, workers))) for each in items]


class Division(NamedTuple):
    """Division of the items of a pass among workers, and the progress of each worker.

    Args:
        workers: number of workers.
        places: for each worker, a pair: the index of the item that the worker was reading, and the
            number of rows that the worker had read from this item.
    """

    workers: int
    places: tuple[tuple[int, int], ...]

    def rest(self, items: Sequence[Item]) -> list[Item]:
        """Return all items that are not read yet, and the rest of each item that is partly read."""
        left = []
        for worker, (item, rows) in enumerate(self.places):
            mine = divided(items, worker, self.workers)[item:]
            if mine and rows:
                mine[0] = mine[0]._replace(cuts=(*mine[0].cuts, rows))
            left += mine
        return sorted(left, key=lambda each: each.window)
