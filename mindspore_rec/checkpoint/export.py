# SPDX-License-Identifier: Apache-2.0
"""A table's rows of one state as a file for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mindspore_rec.checkpoint.chain import Entry, verify_chain
from mindspore_rec.checkpoint.rows import rows_at, table_entry
from mindspore_rec.checkpoint.table_file import to_batch

__all__ = ["ENDINGS", "export_table"]

ENDINGS = (".parquet", ".arrow", ".csv")


def export_table(chain: Sequence[Entry], name: str, path: Path, with_state: bool = False) -> int:
    """Writes the rows in order of their keys; returns how many.

    Args:
        chain: from `newest_chain`.
        name: of the table.
        path: a new file, with one of the `ENDINGS`. Of a `.csv` the columns are key, value_0,
            value_1, ..., [state_0, ...], count, last_step, last_time.
        with_state: with the optimizer's state. Default: False.

    Raises:
        FileExistsError: there is something at path.
        CheckpointError: a file of the chain is damaged, or there is no such table.
        ValueError: the ending is another.
    """
    if path.suffix not in ENDINGS:
        raise ValueError(f"the file must end with one of {', '.join(ENDINGS)}, got {path.name!r}")
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    table_entry(chain[-1], name)
    verify_chain(chain)
    written = 0
    writer = None
    try:
        for rows in rows_at(chain, name):
            batch = to_batch(rows, with_state, flat=path.suffix == ".csv")
            if writer is None:
                writer = _writer(path, batch.schema)
            writer.write_batch(batch)
            written += len(rows)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        if writer is not None:
            writer.close()
    return written


def _writer(path: Path, schema: pa.Schema) -> pa.RecordBatchFileWriter:
    if path.suffix == ".parquet":
        return pyarrow.parquet.ParquetWriter(path, schema)
    if path.suffix == ".csv":
        return pyarrow.csv.CSVWriter(path, schema)
    return pa.ipc.new_file(path, schema)
