# SPDX-License-Identifier: Apache-2.0
"""SchemaLog: a log for a dry run, with the keys that are looked up in one table of a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec.common.columns.histories import offsets_name, values_name
from mindspore_rec.common.columns.lists import PADDING_KEY
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.plan.log import KeyLog

__all__ = ["SchemaLog", "table_names"]


class SchemaLog(KeyLog):
    """Log of the keys of one table of a schema; the log can be read any number of times.

    The keys are the same as in training: the values of the schema's histories, and the unpadded
    numbers of the array `ids`, which the schema produces. The size and the progress of a SchemaLog
    are counted in rows; other logs count bytes.

    Args:
        rows: `Rows` that `mindspore_rec.data.read` returned for a schema, in the order of training.
        table: name of the table, as `table_names` returns it. If `table` is None, which is the
            default, the log is for the table that holds all columns without settings of their own.

    Raises:
        TypeError: `rows` were not returned by `mindspore_rec.data.read`.
        ValueError: the rows were read without a schema, the schema has no such table, or the
            schema's scales have not been fitted.

    Example:
        >>> import pandas as pd
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.data import read
        >>> from mindspore_rec.feature import CategoryColumn, ListColumn
        >>> columns = [CategoryColumn("item", table="items"), ListColumn("seen", table="items")]
        >>> frame = pd.DataFrame({"item": [7, 8], "seen": [[8, 9], []]})
        >>> log = SchemaLog(read(frame, Schema(columns)), "items")
        >>> [(len(batch.keys), len(set(batch.keys.tolist()))) for batch in log.batches(2)]
        [(4, 3)]
    """

    def __init__(self, rows: Rows, table: str | None = None) -> None:
        if not isinstance(rows, Rows):
            raise TypeError(f"rows must be what mindspore_rec.data.read returned, got {rows!r:.80}")
        if not isinstance(rows.schema, Schema):
            raise ValueError("rows must be read with a schema: read(source, schema)")
        schema = rows.schema
        schema.check_fitted()
        groups = dict(zip(table_names(schema), schema.tables, strict=True))
        if table not in groups:
            raise ValueError(f"table must be one of {list(groups)}, got {table!r}")
        fields = [schema.fields[place] for place in groups[table].fields]
        self.paths = [Path(rows.source)]
        self.time = None if schema.time is None else schema.time.name
        self.size = rows.count()
        names = list(schema.feature_names)
        if self.time is not None and self.time not in names:
            names.append(self.time)
        self._rows = rows.select(names)
        self._schema = schema
        places = [np.arange(each.start, each.stop) for each in fields]
        self._places = np.concatenate([np.arange(0), *places])
        self._histories = [
            (values_name(each.name), offsets_name(history[0].name))
            for history in schema.histories
            for each in history
            if each.name in groups[table].histories
        ]

    def _parts(self, progress: Callable[[int], object] | None) -> Iterator[Any]:
        for batch in self._rows:
            arrays = self._schema.arrays_of(batch, with_label=False)
            ids = arrays["ids"][:, self._places]
            is_key = ids != PADDING_KEY
            keys, counts = ids[is_key], is_key.sum(axis=1)
            for values, offsets in self._histories:
                more = np.diff(arrays[offsets])
                keys, counts = _by_rows(keys, counts, arrays[values], more), counts + more
            yield keys, counts, self._seconds(batch)
            if progress is not None:
                progress(batch.num_rows)

    def _seconds(self, batch: Any) -> np.ndarray | None:
        timestamp = self._schema.pipeline.timestamp
        if timestamp is None or timestamp.transform is None:
            return None
        seconds = timestamp.transform.apply(batch.column(self.time), learn=False)
        return np.asarray(seconds, np.float64).reshape(-1)


def table_names(schema: Schema) -> list[str | None]:
    """Return the name of each table of a schema, in the order of the tables.

    Columns without settings of their own share one table, whose name is None. The names of all
    other tables come from the schema. If the schema gives no name, the name is the table's index,
    for example '2' for a network's table `dcn_v2.embedding.2`.

    Example:
        >>> from mindspore_rec.feature import CategoryColumn
        >>> columns = [CategoryColumn("user"), CategoryColumn("item", table="items")]
        >>> table_names(Schema([*columns, CategoryColumn("shop", admission=2)]))
        [None, 'items', '2']
    """
    usual = (schema.embedding_dim, None, None)
    return [
        str(place)
        if each.name is None and (each.embedding_dim, each.admission, each.eviction) != usual
        else each.name
        for place, each in enumerate(schema.tables)
    ]


def _by_rows(
    keys: np.ndarray, counts: np.ndarray, others: np.ndarray, other_counts: np.ndarray
) -> np.ndarray:
    """Return each log row's keys, row by row: first the row's keys in `keys`, then the row's keys
    in `others`.

    Example:
        >>> keys, others = np.array([1, 2, 3]), np.array([7, 8])
        >>> _by_rows(keys, np.array([2, 1]), others, np.array([0, 2])).tolist()
        [1, 2, 3, 7, 8]
    """
    rows = np.arange(len(counts))
    row = np.concatenate([np.repeat(rows, counts), np.repeat(rows, other_counts)])
    made: np.ndarray = np.concatenate([keys, others])[np.argsort(row, kind="stable")]
    return made
