# SPDX-License-Identifier: Apache-2.0
"""What a table knows of keys it has not admitted, as a file.

Exact counters: Arrow IPC with columns `key` int64, `count`, `last_step`, `last_time` uint32, sorted
by key. A sketch: its counters as they are in memory, with the ending `.sketch`; it loads into a
table with a sketch of the same size.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from mindspore_rec import _native

__all__ = ["Counters", "read_counters", "take_counters", "write_counters"]

_COLUMNS = {
    "key": "keys", "count": "counts", "last_step": "last_steps", "last_time": "last_times",
}  # fmt: skip

Counters = bytes | dict[str, np.ndarray] | None


def take_counters(table: _native.Table) -> Counters:
    """A copy of the counters: of a sketch, of single keys, or None where there are none."""
    sketch = table.export_sketch()
    if sketch:
        return sketch
    counters = table.export_counters()
    return counters if len(counters["keys"]) else None


def write_counters(counters: Counters, path: Path) -> str | None:
    """Writes them to `path` with an ending; the name, or None where there are none."""
    if counters is None:
        return None
    if isinstance(counters, bytes):
        file = path.with_name(path.name + ".sketch")
        file.write_bytes(counters)
        return file.name
    order = np.argsort(counters["keys"])
    columns = {column: pa.array(counters[name][order]) for column, name in _COLUMNS.items()}
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    file = path.with_name(path.name + ".arrow")
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return file.name


def read_counters(table: _native.Table, path: Path) -> None:
    """Sets a table's counters from what `write_counters` wrote.

    Raises:
        ValueError: the table counts in another way, or its sketch has another size.
    """
    if path.suffix == ".sketch":
        table.import_sketch(path.read_bytes())
        return
    with pa.memory_map(str(path)) as source:
        columns = pa.ipc.open_file(source).read_all().combine_chunks()
    table.import_counters(
        **{
            name: np.ascontiguousarray(columns[column].to_numpy())
            for column, name in _COLUMNS.items()
        }
    )
