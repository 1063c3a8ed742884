# SPDX-License-Identifier: Apache-2.0
"""SchemaLog: the keys that one table of a schema looks up, as a log for a dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec.common.columns.lists import PADDING_KEY
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.plan.log import KeyLog

__all__ = ["SchemaLog"]


class SchemaLog(KeyLog):
    """Log of the keys of one table of a schema; it can be read any number of times.

    The keys are the array `ids` of the schema without padding, as in training.

    Args:
        rows: the rows, as `mindspore_rec.data.read` returns them with the schema, in the order of
            training.
        table: name of the table. Default: None, the table of all columns without own settings.

    Raises:
        TypeError: `rows` are something else.
        ValueError: the rows were read without a schema, the schema has no such table, or its scales
            have learned nothing.

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
        groups = {group.name: group for group in schema.tables}
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
        self._places = np.concatenate([np.arange(each.start, each.stop) for each in fields])

    def _parts(self, progress: Callable[[int], object] | None) -> Iterator[Any]:
        for batch in self._rows:
            ids = self._schema.arrays_of(batch, with_label=False)["ids"][:, self._places]
            is_key = ids != PADDING_KEY
            yield ids[is_key], is_key.sum(axis=1), self._seconds(batch)
            if progress is not None:
                progress(batch.num_rows)

    def _seconds(self, batch: Any) -> np.ndarray | None:
        timestamp = self._schema.pipeline.timestamp
        if timestamp is None or timestamp.transform is None:
            return None
        seconds = timestamp.transform.apply(batch.column(self.time), learn=False)
        return np.asarray(seconds, np.float64).reshape(-1)
