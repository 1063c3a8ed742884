# SPDX-License-Identifier: Apache-2.0
"""Files of a table's rows: Arrow IPC, which pandas, Polars and DuckDB can open.

The column `key` is int64. The columns `value` and `state` (optimizer state) are fixed-size lists of
float32 or of the table's type (`row_format.py`). The columns `count`, `last_step` and `last_time`
are uint32. Rows are sorted by key, in record batches of 65,536 rows, so that tables with the same
rows have the same files, even if the rows are in different tiers. Writing and reading need memory
only for a part of the table.

In memory, rows are NumPy structured arrays with the file's columns as fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.digests.digest import DigestSum
from mindspore_rec.common.rows.bfloat16 import from_bfloat16
from mindspore_rec.common.rows.host_table import HostTable
from mindspore_rec.common.run.arrow_file import read_batches
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.key_sort import KeySort
from mindspore_rec.common.run.row_format import (
    NUMBERS,
    array_of,
    flat_of,
    list_type,
    narrowed,
    widened,
)
from mindspore_rec.common.run.share import ALL, Share

__all__ = [
    "ALL_KEYS",
    "KEYS",
    "check_rows",
    "check_share",
    "described_type",
    "file_dtypes",
    "own_rows",
    "read_columns",
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

ALL_KEYS = (-(1 << 63), (1 << 63) - 1)
KEYS = pa.schema([pa.field("key", pa.int64())])

Arrays = dict[str, np.ndarray]


@lru_cache(maxsize=256)
def row_type(
    dim: int, state_width: int, value_dtype: str = "float32", state_dtype: str = "float32"
) -> np.dtype:
    """Return the structured dtype of a row.

    Example:
        >>> row_type(2, 0).names
        ('key', 'value', 'count', 'last_step', 'last_time')
    """
    width = dim + 4 if value_dtype == "int8" else dim  # with scale and offset
    fields: list[Any] = [("key", "<i8"), ("value", NUMBERS[value_dtype], (width,))]
    if state_width > 0:
        fields.append(("state", NUMBERS[state_dtype], (state_width,)))
    return np.dtype(fields + [(column, "<u4") for column in _INTEGERS])


def described_type(table: dict[str, Any]) -> np.dtype:
    """Return the structured dtype of a table's rows, from the table's entry in a manifest."""
    dtypes = (table.get("value_dtype", "float32"), table.get("state_dtype", "float32"))
    return row_type(table["dim"], table["state_width"], *dtypes)


def file_dtypes(table: HostTable) -> dict[str, str]:
    """Return a manifest's fields `value_dtype` and `state_dtype`.

    A field with the value float32 is omitted.
    """
    value, state = table.row_dtypes
    if table.scored:
        state = "float32"  # the frequency or score is among them
    named = {"value_dtype": value, "state_dtype": state if table.state_width else "float32"}
    return {name: dtype for name, dtype in named.items() if dtype != "float32"}


def to_rows(arrays: Arrays, dtype: np.dtype) -> np.ndarray:
    """Convert the arrays of `TableParameter.export_rows` to a structured array of rows."""
    rows = np.empty(len(arrays["keys"]), dtype)
    rows["key"] = arrays["keys"]
    rows["value"] = narrowed(arrays["values"], dtype["value"].base)
    if "state" in (dtype.names or ()):
        rows["state"] = narrowed(arrays["states"], dtype["state"].base)
    for column, name in _INTEGERS.items():
        rows[column] = arrays[name]
    return rows


def to_arrays(rows: np.ndarray, with_state: bool = True) -> Arrays:
    """Convert rows to the arguments of `TableParameter.import_rows`. Rows of int8 stay int8."""
    names = {"key": "keys", "value": "values", "state": "states", **_INTEGERS}
    if rows.dtype["value"].base.str == NUMBERS["int8"]:
        names["value"] = "codes"
    else:
        rows = widened(rows)
    if not with_state:
        del names["state"]
    return {
        name: np.ascontiguousarray(rows[column])
        for column, name in names.items()
        if column in (rows.dtype.names or ())
    }


def write_table(table: HostTable, path: Path, share: Share = ALL) -> tuple[int, str]:
    """Write every row of a table; return the number of rows, and the digest of the table.

    The digest is computed while the rows are exported, before the rows are sorted and written.

    Raises:
        RuntimeError: a row's key does not belong to `share`.
    """
    stats = table.stats()
    dtype = row_type(table.dim, stats["state_width"], **file_dtypes(table))
    sort = KeySort(path.with_name(path.name + ".sort"), dtype, stats["rows"])
    digest = DigestSum("float32")

    def take(part: Arrays) -> None:
        digest.add(part["keys"], part["values"])
        sort.add(to_rows(own_rows(part, share), dtype))

    try:
        table.export_parts(take, with_state=True)
        return write_rows(sort.sorted_parts(), dtype, path), digest.total.digest
    finally:
        sort.close()


def own_rows(arrays: Arrays, share: Share) -> Arrays:
    """Check that all keys in the arrays belong to a share, and return the arrays unchanged.

    Raises:
        RuntimeError: a key does not belong to the share.
    """
    strangers = arrays["keys"][~share.owns(arrays["keys"])]
    if len(strangers):
        raise RuntimeError(
            f"worker {share.worker} of {share.workers} has a row of key {strangers[0]}, which "
            "another worker owns: rows are put by their owner only"
        )
    return arrays


def write_rows(parts: Iterable[np.ndarray], dtype: np.dtype, path: Path) -> int:
    """Write rows, which arrive in parts and in the order of keys. Return the number of rows."""
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


def read_rows(
    path: Path,
    dtype: np.dtype,
    rows: int,
    legal: tuple[int, int] = ALL_KEYS,
    most: int = _BATCH_ROWS,
) -> Iterator[np.ndarray]:
    """Yield the rows of a file, a part at a time.

    Args:
        path: the file.
        dtype: dtype of the rows, from `row_type`.
        rows: number of rows in the file.
        legal: the lowest and the highest legal key. Default: any int64.
        most: maximum number of rows of a part. Default: 65,536, the number of rows of a record
            batch.

    Raises:
        CheckpointError: the file's rows do not fit `dtype`, `rows` and `legal`, or are not sorted
            by key.
    """
    for batch in _row_batches(path, dtype, rows, legal):
        for first in range(0, batch.num_rows, most):
            yield _structured(batch.slice(first, most), dtype)


def _structured(batch: pa.RecordBatch, dtype: np.dtype) -> np.ndarray:
    part = np.empty(batch.num_rows, dtype)
    for column in dtype.names or ():
        if dtype[column].shape:
            width = dtype[column].shape[0]
            part[column] = flat_of(batch[column]).reshape(-1, width)
        else:
            part[column] = batch[column].to_numpy()
    return part


def read_columns(
    path: Path, dtype: np.dtype, rows: int, legal: tuple[int, int] = ALL_KEYS
) -> Iterator[Arrays]:
    """Yield the rows of a file, without optimizer states, as dicts of arguments for `import_rows`.

    If a column's numbers are float32 in the file, its array is a view of Arrow's record batch.

    Args and Raises: as for `read_rows`.
    """
    width = dtype["value"].shape[0]
    for batch in _row_batches(path, dtype, rows, legal):
        values = flat_of(batch["value"])
        if values.dtype.kind == "u":
            values = from_bfloat16(values)
        columns = {name: batch[column].to_numpy() for column, name in _INTEGERS.items()}
        yield {
            "keys": batch["key"].to_numpy(),
            "values": values.astype(np.float32, copy=False).reshape(-1, width),
            **columns,
        }


def check_rows(
    path: Path,
    dtype: np.dtype,
    rows: int,
    legal: tuple[int, int] = ALL_KEYS,
    share: Share = ALL,
) -> None:
    """Check a file as `read_rows` does, but read only the keys of the rows.

    Raises:
        CheckpointError: as for `read_rows`, or a key does not belong to `share`.
    """
    for batch in _row_batches(path, dtype, rows, legal, ("key",)):
        check_share(path, batch["key"].to_numpy(), share)


def check_share(path: Path, keys: np.ndarray, share: Share) -> None:
    """Raise CheckpointError if a key does not belong to `share`."""
    strangers = keys[~share.owns(keys)]
    if len(strangers):
        raise CheckpointError(
            f"{path} is damaged: it has key {strangers[0]}, which is not of worker {share.worker} "
            f"of {share.workers}"
        )


def _row_batches(
    path: Path,
    dtype: np.dtype,
    rows: int,
    legal: tuple[int, int],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    last = None
    for batch in read_batches(path, _schema(dtype), rows, columns):
        keys = batch["key"].to_numpy()
        if not len(keys):
            raise CheckpointError(f"{path} is damaged: a batch has no rows")
        _check_order(path, keys, last, legal)
        last = keys[-1]
        yield batch


def _check_order(path: Path, keys: np.ndarray, last: Any, legal: tuple[int, int]) -> None:
    if not (keys[1:] > keys[:-1]).all() or (last is not None and len(keys) and keys[0] <= last):
        raise CheckpointError(f"{path} is damaged: its keys are not in ascending order")
    if len(keys) and not (legal[0] <= keys[0] and keys[-1] <= legal[1]):
        raise CheckpointError(
            f"{path} is damaged: it has keys from {keys[0]} to {keys[-1]}, legal: from {legal[0]} "
            f"to {legal[1]}"
        )


def write_keys(keys: np.ndarray, path: Path) -> None:
    """Write keys in ascending order to an Arrow IPC file with the column `key`."""
    batch = pa.record_batch([pa.array(np.sort(keys), pa.int64())], schema=KEYS)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_keys(path: Path, rows: int, legal: tuple[int, int] = ALL_KEYS) -> np.ndarray:
    """Return the keys that `write_keys` wrote.

    Raises:
        CheckpointError: the file does not have `rows` legal keys in ascending order.
    """
    parts = [np.array(batch["key"].to_numpy()) for batch in read_batches(path, KEYS, rows)]
    keys = np.concatenate([np.empty(0, np.int64), *parts])
    _check_order(path, keys, None, legal)
    return keys


@lru_cache(maxsize=256)
def _schema(dtype: np.dtype) -> pa.Schema:
    fields = [pa.field("key", pa.int64())]
    for column in ("value", "state"):
        if column in (dtype.names or ()):
            fields.append(pa.field(column, list_type(dtype[column])))
    return pa.schema(fields + [pa.field(column, pa.uint32()) for column in _INTEGERS])


def to_batch(rows: np.ndarray, with_state: bool = True, flat: bool = False) -> pa.RecordBatch:
    """Convert rows to columns of float32.

    With `flat`, each element of a row's value is a separate column.
    """
    rows = widened(rows)
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
        several = values.ndim > 1
        columns.append(array_of(values, field.type) if several else pa.array(values, field.type))
    return pa.record_batch(columns, schema=schema)
