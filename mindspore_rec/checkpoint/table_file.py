# SPDX-License-Identifier: Apache-2.0
"""One table as one Arrow IPC file, which pandas, Polars and DuckDB open as it is.

Columns: `key` int64, `value` fixed-size list of float32, `state` the same (optimizer state),
`count`, `last_step` and `last_time` uint32. Rows are sorted by key, so equal tables give equal
files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec import _native

_INTEGERS = {"count": "counts", "last_step": "last_steps", "last_time": "last_times"}


def _rows_column(rows: np.ndarray) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def write_table(table: _native.Table, path: Path) -> int:
    """Writes every row; returns how many."""
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    columns: dict[str, pa.Array] = {
        "key": pa.array(rows["keys"][order]),
        "value": _rows_column(rows["values"][order]),
    }
    if rows["states"].shape[1] > 0:
        columns["state"] = _rows_column(rows["states"][order])
    for column, name in _INTEGERS.items():
        columns[column] = pa.array(rows[name][order])
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return len(order)


def read_table(path: Path) -> dict[str, Any]:
    """The arguments of `_native.Table.import_rows`, as arrays over the mapped file."""
    with pa.memory_map(str(path)) as source:
        columns = pa.ipc.open_file(source).read_all().combine_chunks()
    found: dict[str, Any] = {"keys": columns["key"].to_numpy()}
    for column, name in (("value", "values"), ("state", "states")):
        if column not in columns.column_names:
            continue
        width = columns.schema.field(column).type.list_size
        chunked = columns[column].combine_chunks()
        flat = chunked.values if isinstance(chunked, pa.FixedSizeListArray) else chunked.flatten()
        found[name] = np.ascontiguousarray(flat.to_numpy()).reshape(-1, width)
    for column, name in _INTEGERS.items():
        found[name] = columns[column].to_numpy()
    return {name: np.ascontiguousarray(array) for name, array in found.items()}
