# SPDX-License-Identifier: Apache-2.0
"""The rows of a table as an Arrow IPC file, which pandas, Polars and DuckDB open as it is.

Columns: `key` int64, `value` fixed-size list of float32, `state` the same (optimizer state),
`count`, `last_step` and `last_time` uint32. Rows are sorted by key and come in record batches of
65,536, so equal tables give equal files, wherever their rows live. Neither writing nor reading
needs memory for more than a part of the table.

In memory rows are NumPy structured arrays with these fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec import _native
from mindspore_rec.checkpoint.key_sort import KeySort

__all__ = [
    "read_keys",
    "read_rows",
    "row_type",
    "to_rows",
    "write_keys",
    "write_rows",
    "write_table",
]

_INTEGERS = {"count": "counts", "last_step": "last_steps", "last_time": "last_times"}
_BATCH_ROWS = 65536

Arrays = dict[str, np.ndarray]


def row_type(dim: int, state_width: int) -> np.dtype:
    """The structured type of a row.

    Example:
        >>> row_type(2, 0).names
        ('key', 'value', 'count', 'last_step', 'last_time')
    """
    fields: list[Any] = [("key", "<i8"), ("value", "<f4", (dim,))]
    if state_width > 0:
        fields.append(("state", "<f4", (state_width,)))
    return np.dtype(fields + [(column, "<u4") for column in _INTEGERS])


def to_rows(arrays: Arrays, dtype: np.dtype) -> np.ndarray:
    """Rows from the arrays of `_native.Table.export_rows`."""
    rows = np.empty(len(arrays["keys"]), dtype)
    rows["key"] = arrays["keys"]
    rows["value"] = arrays["values"]
    if "state" in (dtype.names or ()):
        rows["state"] = arrays["states"]
    for column, name in _INTEGERS.items():
        rows[column] = arrays[name]
    return rows


def to_arrays(rows: np.ndarray, with_state: bool = True) -> Arrays:
    """The arguments of `_native.Table.import_rows` from rows."""
    names = {"key": "keys", "value": "values", "state": "states", **_INTEGERS}
    if not with_state:
        del names["state"]
    return {
        name: np.ascontiguousarray(rows[column])
        for column, name in names.items()
        if column in (rows.dtype.names or ())
    }


def write_table(table: _native.Table, path: Path) -> int:
    """Writes every row of a table; returns how many."""
    stats = table.stats()
    dtype = row_type(table.dim, stats["state_width"])
    sort = KeySort(path.with_name(path.name + ".sort"), dtype, stats["rows"])
    try:
        table.export_parts(lambda part: sort.add(to_rows(part, dtype)), with_state=True)
        return write_rows(sort.sorted_parts(), dtype, path)
    finally:
        sort.close()


def write_rows(parts: Iterable[np.ndarray], dtype: np.dtype, path: Path) -> int:
    """Writes rows that come sorted by key, a part at a time; returns how many."""
    schema = _schema(dtype)
    written = 0
    rest = np.empty(0, dtype)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for part in parts:
            rows = np.concatenate([rest, part]) if len(rest) else part
            whole = len(rows) // _BATCH_ROWS * _BATCH_ROWS
            for first in range(0, whole, _BATCH_ROWS):
                writer.write_batch(_record_batch(rows[first : first + _BATCH_ROWS], schema))
            rest = rows[whole:].copy()
            written += whole
        if len(rest):
            writer.write_batch(_record_batch(rest, schema))
    return written + len(rest)


def read_rows(path: Path) -> Iterator[np.ndarray]:
    """The rows of a file, a part at a time."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        widths = {
            field.name: field.type.list_size
            for field in reader.schema
            if pa.types.is_fixed_size_list(field.type)
        }
        dtype = row_type(widths["value"], widths.get("state", 0))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rows = np.empty(batch.num_rows, dtype)
            for column in dtype.names or ():
                values = batch[column]
                if column in widths:
                    flat = values.flatten().to_numpy()
                    rows[column] = flat.reshape(-1, widths[column])
                else:
                    rows[column] = values.to_numpy()
            yield rows


def write_keys(keys: np.ndarray, path: Path) -> None:
    """Writes keys in ascending order, as an Arrow IPC file with the column `key`."""
    batch = pa.record_batch([pa.array(np.sort(keys), pa.int64())], names=["key"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_keys(path: Path) -> np.ndarray:
    """What `write_keys` wrote."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
        return np.array(table["key"].to_numpy(), np.int64)


def _schema(dtype: np.dtype) -> pa.Schema:
    fields = [pa.field("key", pa.int64())]
    for column in ("value", "state"):
        if column in (dtype.names or ()):
            fields.append(pa.field(column, pa.list_(pa.float32(), dtype[column].shape[0])))
    return pa.schema(fields + [pa.field(column, pa.uint32()) for column in _INTEGERS])


def to_batch(rows: np.ndarray, with_state: bool = True, flat: bool = False) -> pa.RecordBatch:
    """Rows as columns; flat: a column for each number of a value, with its place in its name."""
    fields = [field for field in _schema(rows.dtype) if with_state or field.name != "state"]
    if not flat:
        return _record_batch(rows, pa.schema(fields))
    columns: dict[str, np.ndarray] = {}
    for field in fields:
        values = rows[field.name]
        if values.ndim == 1:
            columns[field.name] = np.ascontiguousarray(values)
        else:
            for j in range(values.shape[1]):
                columns[f"{field.name}_{j}"] = np.ascontiguousarray(values[:, j])
    return pa.record_batch(columns)


def _record_batch(rows: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        values = np.ascontiguousarray(rows[field.name])
        if pa.types.is_fixed_size_list(field.type):
            flat = pa.array(values.reshape(-1), pa.float32())
            columns.append(pa.FixedSizeListArray.from_arrays(flat, type=field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.record_batch(columns, schema=schema)
