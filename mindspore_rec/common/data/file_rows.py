# SPDX-License-Identifier: Apache-2.0
"""FileRows: what a reader of one format must offer, and files that are read from front to back."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CHUNK_ROWS", "POOL", "Cursor", "FileRows", "Part", "check_names"]

CHUNK_ROWS = 1 << 15
"""Rows of a chunk: columns of many rows would leave the cache, and their memory the process."""

POOL = pa.system_memory_pool()
"""Memory of rows. The native core makes malloc keep what is freed, which Arrow's own pool gives
back to the system, and takes again at the cost of a page fault for each 4 KiB."""


class Part(NamedTuple):
    """Rows of a file that are read together, such as a row group.

    Args:
        number: number of the part in its file.
        rows: number of rows; None if it is known only after reading.
        size: number of rows, estimated where `rows` is None.
        place: number of its first row in the file; of a text file, a number that is as unique.
    """

    number: int
    rows: int | None
    size: int
    place: int


class FileRows(ABC):
    """Rows of one file in parts. Threads may call `decode` together.

    A subclass reads rows of another format or place: `read` takes an object of it as a source.

    Attributes:
        name: the file as messages name it.
        schema: names and types of the columns.
        sequential: whether `fetch` is called by one thread, in the order in which the parts are
            read, and the parts stay in their order when rows are shuffled by an `Order`.

    Example:
        >>> from mindspore_rec.data import read
        >>> class Squares(FileRows):
        ...     name = "squares"
        ...     schema = pa.schema({"root": pa.int64(), "square": pa.int64()})
        ...     def parts(self):
        ...         return [Part(number, 10, 10, 10 * number) for number in range(3)]
        ...     def decode(self, number, fetched, columns):
        ...         roots = range(10 * number, 10 * number + 10)
        ...         table = pa.table({"root": roots, "square": [root**2 for root in roots]})
        ...         return table.select(columns)
        >>> rows = read(Squares(), where=pc.field("square") >= 25)
        >>> len(rows), rows.to_table()["square"].to_pylist()[:2]
        (25, [25, 36])
    """

    name: str
    schema: pa.Schema
    sequential: bool = False

    @abstractmethod
    def parts(self) -> list[Part]:
        """Return all parts of the file in order."""

    def first_row(self, number: int) -> int:
        """Return the number of a part's first row in the file, from 0, for messages."""
        return self.parts()[number].place

    def fetch(self, number: int) -> Any:
        """Return the bytes or rows of a part as they are stored, for `decode`."""
        return None

    @abstractmethod
    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a part, with the named columns only."""

    def matching(self, expression: pc.Expression) -> set[int] | None:
        """Return the parts that may have rows of a filter; None if all may."""
        return None


class Cursor:
    """Access by number to things that can only be made in order; starts again to go back.

    Args:
        begin: function that returns an iterator from the first one on.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._items: Iterator[Any] | None = None
        self._next = 0

    def get(self, number: int) -> Any:
        """Return the item with this number."""
        with self._lock:
            if self._items is None or number < self._next:
                self._items, self._next = self._begin(), 0
            try:
                for item in self._items:
                    self._next += 1
                    if self._next > number:
                        return item
            except BaseException:
                self._items = None
                raise
            self._items = None
        raise RuntimeError("the file became shorter while it was read")


def check_names(names: Sequence[str], where: str) -> None:
    """Raise a ValueError if a file has no columns, or two columns of one name."""
    if not names:
        raise ValueError(f"{where} has no columns")
    twice = sorted({each for each in names if list(names).count(each) > 1}) if _twice(names) else []
    if twice:
        raise ValueError(
            f"{where} has two columns named {twice[0]!r}: names must differ, so rename one"
        )


def _twice(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)
