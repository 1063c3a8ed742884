# SPDX-License-Identifier: Apache-2.0
"""Files that contain a table's rows as int8 or int4, for serving with other programs.

An Arrow or Parquet file with the columns

    key         int64
    scale       halffloat
    offset      halffloat
    codes       fixed-size list of uint8: for int8 one per number, for int4 one per two numbers, of
                which the first is in the lower half
    count, last_step, last_time    uint32

The value of a number is `offset + scale * code`. The schema's metadata has `mindspore_rec.rows`
('int8' or 'int4') and `mindspore_rec.dim` (the number of values of a row).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mindspore_rec.common.rows.quantise import BITS, dequantise, quantise
from mindspore_rec.common.run.row_format import widened

__all__ = ["read_quantized", "to_quantised_batch"]

_ROWS, _DIM = b"mindspore_rec.rows", b"mindspore_rec.dim"
_INTEGERS = ("count", "last_step", "last_time")


def to_quantised_batch(rows: np.ndarray, numbers: str) -> pa.RecordBatch:
    """Convert rows to the column layout of a quantized file.

    Args:
        rows: structured array of a table's rows.
        numbers: 'int8' or 'int4'.

    Example:
        >>> kinds = [("key", "<i8"), ("value", "<f4", (2,))]
        >>> rows = np.zeros(1, [*kinds, *((name, "<u4") for name in _INTEGERS)])
        >>> to_quantised_batch(rows, "int4").schema.names
        ['key', 'scale', 'offset', 'codes', 'count', 'last_step', 'last_time']
    """
    values = widened(rows)["value"]
    scale, offset, codes = quantise(values, BITS[numbers])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1)), codes.shape[1])
    columns = {
        "key": np.ascontiguousarray(rows["key"]),
        "scale": scale,
        "offset": offset,
        "codes": lists,
        **{name: np.ascontiguousarray(rows[name]) for name in _INTEGERS},
    }
    batch = pa.RecordBatch.from_pydict(columns)
    return batch.replace_schema_metadata({_ROWS: numbers, _DIM: str(values.shape[1])})


def read_quantized(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read a quantized file, and return the keys (int64 `[n]`) and the values (float32 `[n, dim]`).

    Args:
        path: a `.parquet` or `.arrow` file that `export --rows int8` or `int4` wrote.

    Raises:
        ValueError: the file is not a quantized file.
    """
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            with pa.OSFile(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
        metadata = table.schema.metadata or {}
        bits, dim = BITS[metadata[_ROWS].decode()], int(metadata[_DIM])
        lists = table["codes"].combine_chunks()
        codes = np.asarray(lists.flatten()).reshape(-1, lists.type.list_size)
        scale, offset = (table[name].to_numpy() for name in ("scale", "offset"))
        return table["key"].to_numpy(), dequantise(scale, offset, codes, bits, dim)
    except (KeyError, AttributeError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} does not have rows of int8 or int4: {error}") from error
