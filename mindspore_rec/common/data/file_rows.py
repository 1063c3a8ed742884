# SPDX-License-Identifier: Apache-2.0
"""FileRows, the interface of all file readers, and helpers for files read from front to back."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CHUNK_ROWS", "POOL", "Cursor", "FileRows", "Part", "check_names"]

CHUNK_ROWS = 1 << 15
"""Number of rows of a chunk. Columns with more rows would not fit the processor's cache."""

POOL = pa.system_memory_pool()
"""Memory of rows, from malloc. The native core makes malloc keep freed memory. Arrow's own pool
returns freed memory to the system, so new rows would cost a page fault for each 4 KiB."""


class Part(NamedTuple):
    """Rows of a file that are read together, such as a row group.

    Args:
        number: index of the part in the file.
        rows: number of rows; None if it is known only after reading.
        size: number of rows; an estimate if `rows` is None.
        place: index of the part's first row in the file. For a text file, `place` is any number
            that is different for each part.
    """

    number: int
    rows: int | None
    size: int
    place: int


class FileRows(ABC):
    """Rows of one file, which are read part by part. Several threads may call `decode` at the same
    time.

    A subclass reads rows of another format or from another place, and `read` accepts an object of
    the subclass as a source.

    Attributes:
        name: name of the file, for error messages and for reports of bad rows.
        schema: names and types of the columns.
        sequential: True if one thread must call `fetch`, in the order in which the parts are read.
            If `sequential` is True, an `Order` that shuffles rows keeps the order of the parts.

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
        """Return the index in the file, from 0, of a part's first row."""
        return self.parts()[number].place

    def fetch(self, number: int) -> Any:
        """Return the stored bytes or rows of a part; pass the result to `decode`."""
        return None

    @abstractmethod
    def decode(self, number: int, fetched: Any, columns: Sequence[str]) -> pa.Table:
        """Return the named columns of a part's rows."""

    def with_texts(self, names: Collection[str]) -> FileRows:
        """Return a reader of the same file that reads the named columns as texts.

        Readers of formats that store the types of columns return themselves.
        """
        return self

    def matching(self, expression: pc.Expression) -> set[int] | None:
        """Return the parts that may have rows for which a filter is true; None means all parts."""
        return None


class Cursor:
    """Return any item of an iterator by its index; for an earlier item, a new iterator is started.

    Args:
        begin: function that returns an iterator over all items.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._items: Iterator[Any] | None = None
        self._next = 0

    def get(self, number: int) -> Any:
        """Return the item at index `number`."""
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
    """Raise a ValueError if a file has no columns, or two columns with the same name."""
    if not names:
        raise ValueError(f"{where} has no columns")
    twice = sorted({each for each in names if list(names).count(each) > 1}) if _twice(names) else []
    if twice:
        raise ValueError(
            f"{where} has two columns named {twice[0]!r}: names must differ, so rename one"
        )


def _twice(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)
