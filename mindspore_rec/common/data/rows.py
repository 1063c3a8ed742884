# SPDX-License-Identifier: Apache-2.0
"""Rows: the result of `read`, which may be filtered, split and divided into batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.columns.arrow_columns import join_rows
from mindspore_rec.common.data.bad_rows import BadRowReport
from mindspore_rec.common.data.batches import ArrowBatches
from mindspore_rec.common.data.data_parts import FilePart
from mindspore_rec.common.data.order import Item, NearOrder, Order
from mindspore_rec.common.data.pipeline import read_items
from mindspore_rec.common.data.places import PlaceShare
from mindspore_rec.common.data.selection import Selection
from mindspore_rec.common.data.time_cuts import time_expression, time_filters, times_of

__all__ = ["Rows"]

_BUFFER_ROWS = 1 << 18
_SAMPLE_PARTS = 16


class Rows:
    """Rows of a source. `read` returns a `Rows` object, and rows are read only when needed.

    Methods such as `where` return a new `Rows` object, a view of the rows, and never change this
    object. Iteration yields record batches in the order of the files. `len()` is the number of
    rows. If rows come from text files, or a filter, split or sample selects them, `len()` reads the
    rows once to count them.

    Args:
        selection: the columns and rows to read from the source.
        threads: number of threads that decode rows. Default: None, which means the number of cores
            that the process may use.

    Example:
        >>> import pandas as pd
        >>> from mindspore_rec.data import read
        >>> rows = read(pd.DataFrame({"user": [7, 8, 9], "click": [0, 1, 0]}))
        >>> rows.names, len(rows)
        (['user', 'click'], 3)
        >>> [batch["user"].to_pylist() for batch in rows.batches(2)]
        [[7, 8], [9]]
    """

    def __init__(self, selection: Selection, threads: int | None = None) -> None:
        self._selection = selection
        self._threads = threads or len(os.sched_getaffinity(0))
        self._count: int | None = None

    def __repr__(self) -> str:
        return f"Rows of {self.source} with the columns {', '.join(self.names)}"

    def __bool__(self) -> bool:
        return True

    @property
    def source(self) -> str:
        """Name of the source in error messages."""
        return self._selection.data.source

    @property
    def schema(self) -> Any:
        """The `Schema` of the columns, or None."""
        return self._selection.schema

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self._selection.names

    @property
    def arrow_schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        return self._selection.arrow_schema

    def count(self) -> int:
        """Return the number of rows; see `len`.

        If the files store the number of rows, and there is no filter, split, sample or check that
        may remove rows, no row is read. The number of rows is computed once and then stored.

        Raises:
            ValueError: a row cannot be read.
        """
        if self._count is None:
            self._count = self._selection.known_count()
        if self._count is None:
            counted = self._selection
            parts = counted.parts()
            if not counted.drops_faults and all(each.part.rows is not None for each in parts):
                # Select one column only, because the count depends on the filter, and not on the
                # selected columns.
                counted = replace(counted, columns=tuple(counted.stored_names[:1]))
                counted = counted if counted.sample else replace(counted, schema=None)
            self._count = sum(each.num_rows for each in _in_order(counted, self._threads))
        return self._count

    def __len__(self) -> int:
        return self.count()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return _in_order(self._selection, self._threads)

    def to_table(self) -> pa.Table:
        """Return all rows as a table in memory."""
        batches = [each for each in self if each.num_rows]
        schema = batches[0].schema if batches else self.arrow_schema
        return pa.Table.from_batches(batches, schema)

    def report(self) -> BadRowReport:
        """Return the number of rows read so far, and the rows that could not be read."""
        return self._selection.data.bad.report()

    # ---- views

    def select(self, columns: Sequence[str]) -> Rows:
        """Return the rows with only some of the columns; other columns are not read.

        Raises:
            ValueError: a column does not exist or is named twice, or no column is named.
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        known = self._selection.data.schema.names
        for name in names:
            if name not in known:
                raise ValueError(f"{self.source} has no column {name!r}: its columns are {known}")
        if len(set(names)) < len(names) or not names:
            raise ValueError(f"columns must be names that differ, got {names}")
        return self._view(columns=tuple(names))

    def with_texts(self, schema: Any) -> Rows:
        """Return the rows, in which columns that a schema reads as texts are texts in CSV files.

        `read` with a schema and `RecModel` do so. A filter compares such columns with texts.

        Args:
            schema: the `Schema`; see `Schema.text_columns`.
        """
        selection = self._selection.with_texts(schema)
        return self if selection is self._selection else self._view(data=selection.data)

    def where(self, expression: Any) -> Rows:
        """Return the rows for which a filter is true.

        A row group of a Parquet file is skipped if its statistics show that no row passes the
        filter.

        Args:
            expression: an expression of `pyarrow.compute`, such as ``pc.field("day") >= 3``, or
                filters in the form of `pyarrow.parquet.read_table`: ``[("day", ">=", 3)]``. The
                expression applies to the stored values.

        Raises:
            TypeError: `expression` is neither an expression nor a list of filters.
        """
        if isinstance(expression, (list, tuple)):
            expression = pq.filters_to_expression(list(expression))
        if not isinstance(expression, pc.Expression):
            raise TypeError(
                "where must be an expression, such as pyarrow.compute.field('day') >= 3, got "
                f"{type(expression).__name__}"
            )
        before = self._selection.where
        return self._view(where=expression if before is None else before & expression)

    def split(self, *shares: float, seed: int = 0) -> tuple[Rows, ...]:
        """Divide the rows at random into parts. Each row is in exactly one part.

        The part to which a row belongs depends only on the seed, the number of the row's file and
        the row's place in the file.

        Args:
            *shares: share of each part, in (0, 1). If the shares add up to less than 1, one more
                part contains the rest.
            seed: seed of the random split, at least 0. Default: 0.

        Raises:
            TypeError: an argument is of the wrong type.
            ValueError: there is no share, an argument is out of range, or the shares add up to more
                than 1.

        Example:
            >>> import pandas as pd
            >>> from mindspore_rec.data import read
            >>> parts = read(pd.DataFrame({"user": range(1000)})).split(0.8, 0.1)
            >>> [len(part) for part in parts], sum(map(len, parts))
            ([805, 89, 106], 1000)
        """
        check_int("seed", seed, 0, 2**63 - 1)
        bounds = np.cumsum([0, *_whole(shares)])
        bounds[-1] = 1
        before = self._selection.shares
        return tuple(
            self._view(shares=(*before, PlaceShare(seed, len(before), float(low), float(high))))
            for low, high in zip(bounds, bounds[1:], strict=False)
        )

    def split_by_time(self, *shares: float, time: str | None = None) -> tuple[Rows, ...]:
        """Split the rows by time and return the parts; the first part has the oldest rows.

        Rows with equal times are in the same part, and rows without a time are in the first part.
        A filter on the time column defines each part. Reading a part skips row groups whose times
        are all in other parts.

        Args:
            *shares: share of each part, in (0, 1). Because rows with equal times stay together, the
                sizes of the parts may differ slightly from the shares. If the shares add up to less
                than 1, one more part contains the rest.
            time: name of the time column. Default: None, which means the schema's time column.

        Raises:
            ValueError: there is no time column, a share is out of range, or there are too few
                different times.

        Example:
            >>> import pandas as pd
            >>> from mindspore_rec.data import read
            >>> rows = read(pd.DataFrame({"ts": [5, 1, 4, 2, 3]}))
            >>> old, new = rows.split_by_time(0.6, time="ts")
            >>> old.to_table()["ts"].to_pylist(), new.to_table()["ts"].to_pylist()
            ([1, 2, 3], [5, 4])
        """
        whole = _whole(shares)
        column = getattr(self.schema, "time", None)
        name = time or getattr(column, "name", None)
        if name is None:
            raise ValueError(
                "split_by_time needs a time column: name it in the schema or by time=, or split by "
                "rows with split()"
            )
        kinds = self._selection.data.schema
        if name not in kinds.names:
            raise ValueError(f"{self.source} has no column {name!r}: its columns are {kinds.names}")
        format = column.format if column is not None and column.name == name else None
        expression = time_expression(name, kinds.field(name).type, format)
        bare = replace(self._selection, schema=None, columns=(name,), sample=None)
        times = (times_of(each.column(0), name, format) for each in _in_order(bare, self._threads))
        filters = time_filters(times, expression, whole, name)
        return tuple(self.where(each) for each in filters)

    # ---- a few rows

    def head(self, rows: int = 5) -> pa.Table:
        """Return the first rows as a table."""
        check_int("rows", rows, 0, 2**31 - 1)
        batches: list[pa.RecordBatch] = []
        for each in _in_order(self._selection, 1) if rows else ():
            batches.append(each.slice(0, rows - sum(one.num_rows for one in batches)))
            if sum(one.num_rows for one in batches) == rows:
                break
        schema = batches[0].schema if batches else self.arrow_schema
        return pa.Table.from_batches(batches, schema)

    def sample(self, rows: int, seed: int = 0) -> pa.Table:
        """Draw up to `rows` rows at random from all files, and return them in the files' order.

        To bound memory, rows are drawn from at most about 16 row groups or blocks of text.

        Args:
            rows: number of rows; if there are no more than `rows` rows, all rows are returned.
            seed: seed of the random draw. Default: 0.
        """
        check_int("rows", rows, 1, 2**31 - 1)
        random = np.random.default_rng(seed)
        parts = self._selection.parts()
        order = random.permutation(len(parts))
        drawn: dict[int, pa.RecordBatch] = {}
        for quota in (True, False):  # without quotas, if parts with few rows left too many out
            total = 0
            for place, number in enumerate(order):
                if total >= rows:
                    break
                left = max(min(_SAMPLE_PARTS, len(order)) - place, 1) if quota else 1
                read = self._read(parts[number])
                wanted = min(-(-(rows - total) // left), read.num_rows)
                chosen = np.sort(random.permutation(read.num_rows)[:wanted])
                drawn[int(number)] = read.take(pa.array(chosen))
                total += wanted
            if total >= rows:
                break
        tables = [pa.Table.from_batches([drawn[each]]) for each in sorted(drawn)]
        return pa.concat_tables(tables) if tables else self.arrow_schema.empty_table()

    # ---- batches

    def batches(
        self,
        batch_size: int,
        *,
        shuffle: bool | str = False,
        seed: int = 0,
        threads: int | None = None,
        buffer_rows: int = _BUFFER_ROWS,
        divide: str = "rows",
        order: Any = None,
    ) -> ArrowBatches:
        """Return batches of the rows for training; each iteration is a pass over the rows.

        With `shuffle`, row groups are read in a random order, and rows are permuted within windows.
        A window is as many consecutive row groups as fit in `buffer_rows` rows, but at least one
        row group. The order of pass k depends only on the files, `buffer_rows`, `seed` and k. In
        text files, blocks of 4 MiB replace row groups. The blocks of one compressed file stay in
        order, so rows of the file are permuted only within the buffer.

        Args:
            batch_size: rows of a batch, at least 1; the last batch of a pass may have fewer.
            shuffle: True for a random order. 'near' permutes rows only within blocks of
                `buffer_rows` rows, so rows that are sorted by time stay nearly sorted.
                Default: False, which means the order of the files.
            seed: seed of the order, at least 0. Default: 0.
            threads: number of threads that decode rows ahead. Default: None, which means the number
                of cores.
            buffer_rows: approximate number of rows that are permuted together. Memory must have
                space for at least 3 * `buffer_rows` rows. With many threads, about two million
                further rows are read ahead. Default: 262,144.
            divide: "rows" or "windows". With "rows", the default, each worker reads all windows and
                selects its rows of each batch, so that any number of workers trains on the same
                batches as one process. With "windows", each worker reads only its share of the
                windows. Without `shuffle`, a window is one row group. If there are few windows,
                each worker reads its share of the rows of each window.
            order: an order that you define, which replaces `shuffle`, `seed` and `buffer_rows`; see
                `Order`. Default: None.

        Returns:
            A source of batches. The source can resume in the middle of a pass, and can be divided
            among workers.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of range.

        Example:
            >>> import pandas as pd
            >>> from mindspore_rec.data import read
            >>> batches = read(pd.DataFrame({"user": range(5)})).batches(2, shuffle=True, seed=1)
            >>> passes = [[batch["user"].to_pylist() for batch in batches] for _ in range(2)]
            >>> passes[0] != passes[1], sorted(sum(passes[0], []))
            (True, [0, 1, 2, 3, 4])
        """
        check_int("batch_size", batch_size, 1, 2**31 - 1)
        check_int("seed", seed, 0, 2**63 - 1)
        check_int("buffer_rows", buffer_rows, 1, 2**40)
        number = self._threads if threads is None else check_int("threads", threads, 1, 1024)
        if isinstance(shuffle, str):
            check_one_of("shuffle", shuffle, ("near",))
        if order is None and shuffle == "near":
            order = NearOrder(seed, buffer_rows)
        elif order is None:
            order = Order(True, seed, buffer_rows) if shuffle else Order()
        check_one_of("divide", divide, ("rows", "windows"))
        return ArrowBatches(self._selection, batch_size, order, number, divide)

    def _read(self, which: FilePart) -> pa.RecordBatch:
        data = self._selection.data
        return join_rows(self._selection.read(which, data.fetch(which)))

    def _view(self, **changes: Any) -> Rows:
        return Rows(replace(self._selection, **changes), self._threads)


def _whole(shares: Sequence[float]) -> list[float]:
    """Return the shares; if the sum is below 1, the missing share is appended."""
    if not shares:
        raise ValueError("split needs at least one share, such as split(0.8)")
    checked = [
        check_number("each share", each, low=0, high=1, low_open=True, high_open=True)
        for each in shares
    ]
    total = sum(checked)
    if total > 1 + 1e-9:
        raise ValueError(f"shares must add up to at most 1, got {list(shares)}")
    return checked if total > 1 - 1e-9 else [*checked, 1 - total]


def _in_order(selection: Selection, threads: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all parts in order."""
    parts = selection.parts()
    order = Order().of_pass(parts, 0, selection.data.sequential)
    items = [Item(each) for each in range(len(parts))]
    for slab in read_items(selection.reading(parts, order, threads), items, 0, 0):
        yield slab.rows
    selection.data.bad.check()
