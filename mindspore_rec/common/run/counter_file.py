# SPDX-License-Identifier: Apache-2.0
"""Files that contain a table's counters for keys that are not admitted yet.

Exact counters are stored as an Arrow IPC file. The column `key` is int64, and the columns `count`,
`last_step` and `last_time` are uint32. The rows are sorted by key. The memory of a sketch's
counters is stored in a file with the suffix `.sketch`. A sketch can be loaded only into a table
with a sketch of the same size.

If there are several workers, each worker writes one file with the counts of the keys that it owns
(`sketch_parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.rows.host_table import HostTable
from mindspore_rec.common.rows.policies import counts_of
from mindspore_rec.common.run.arrow_file import read_batches
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.share import ALL, Share
from mindspore_rec.common.run.sketch_parts import joined_sketch
from mindspore_rec.common.run.table_file import check_share

__all__ = [
    "Counters",
    "admission_of",
    "check_counters",
    "read_counters",
    "take_counters",
    "write_counters",
]

_COLUMNS = {
    "key": "keys", "count": "counts", "last_step": "last_steps", "last_time": "last_times",
}  # fmt: skip

_SCHEMA = pa.schema(
    [pa.field("key", pa.int64()), *(pa.field(name, pa.uint32()) for name in list(_COLUMNS)[1:])]
)

Counters = bytes | dict[str, np.ndarray] | None


def take_counters(table: HostTable) -> Counters:
    """Return a copy of the counters (of a sketch or of single keys); None without counters."""
    sketch = table.export_sketch()
    if sketch:
        return sketch
    counters = table.export_counters()
    return counters if len(counters["keys"]) else None


def write_counters(counters: Counters, path: Path) -> str | None:
    """Write counters to `path` plus a suffix. Return the file's name; None for no counters."""
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


def check_counters(path: Path, admission: str, share: Share = ALL) -> None:
    """Check that a file of counters fits a table with the admission policy `admission`.

    Raises:
        CheckpointError: the file is damaged, contains counters of another kind, or contains a
            counter for a key outside `share`.
    """
    counts = {".sketch": "sketch", ".arrow": "keys"}[path.suffix]
    if counts_of(admission.partition(" ")[0]) != counts:
        raise CheckpointError(f"{path} has counters of a table that admits by {admission!r:.100}")
    if path.suffix == ".arrow":
        check_share(path, _read_columns(path)["keys"], share)


def read_counters(table: Any, files: Sequence[Path | None], share: Share = ALL) -> None:
    """Set a table's counters from the files that `write_counters` wrote, one file for each part.

    Args:
        table: the table.
        files: for each part of the saved table, the path of its file; None if the part has no
            counters.
        share: the keys whose counters are set. Default: all.

    Raises:
        CheckpointError: a file is damaged.
        ValueError: the files and the table have different kinds of counters or different sizes of
            sketches.
    """
    wanted = [(number, files[number]) for number in share.overlapping(len(files))]
    there = [(number, path) for number, path in wanted if path is not None]
    if not there:
        return
    if there[0][1].suffix == ".sketch":
        saved = {number: path.read_bytes() for number, path in there}
        table.import_sketch(joined_sketch(saved, _sketch_bits(table), share, len(files)))
        return
    parts = [_read_columns(path) for _, path in there]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if not share.is_part_of(len(files)):
        mine = share.owns(columns["keys"])
        columns = {name: values[mine] for name, values in columns.items()}
    table.import_counters(**columns)


def _sketch_bits(table: Any) -> int:
    return int(table.admission.native_arguments()["sketch_bits"])


def admission_of(table: Any) -> str:
    """Return the kind of admission counters. A table can load only counters of the same kind.

    Args:
        table: the table.
    """
    if not hasattr(table, "admission"):
        return "none"
    arguments = table.admission.native_arguments()
    kind = str(arguments["admission_kind"])
    if counts_of(kind) != "sketch":
        return kind
    return f"{kind} of {arguments['sketch_bytes']} bytes, {arguments['sketch_bits']} bits a counter"


def _read_columns(path: Path) -> dict[str, np.ndarray]:
    batches = list(read_batches(path, _SCHEMA))
    columns = {
        name: np.concatenate(
            [np.empty(0, _SCHEMA.field(column).type.to_pandas_dtype())]
            + [batch[column].to_numpy() for batch in batches]
        )
        for column, name in _COLUMNS.items()
    }
    if not (columns["keys"][1:] > columns["keys"][:-1]).all():
        raise CheckpointError(f"{path} is damaged: its keys are not in ascending order")
    return columns
