# SPDX-License-Identifier: Apache-2.0
"""Export the rows that a table has in a given state, as a file for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mindspore_rec.common.rows.quantise import BITS, check_rows
from mindspore_rec.common.run.chain import Entry, verify_chain
from mindspore_rec.common.run.quantized_file import to_quantised_batch
from mindspore_rec.common.run.rows import rows_at, table_entry
from mindspore_rec.common.run.table_file import to_batch

__all__ = ["ENDINGS", "export_table"]

ENDINGS = (".parquet", ".arrow", ".csv")


def export_table(
    chain: Sequence[Entry],
    name: str,
    path: Path,
    with_state: bool = False,
    numbers: str = "float32",
) -> int:
    """Write the rows in the order of the keys; return the number of written rows.

    Args:
        chain: checkpoints from `newest_chain`.
        name: name of the table.
        path: path of a new file, whose suffix is in `ENDINGS`. A `.csv` file has the columns key,
            value_0, value_1, ..., [state_0, ...], count, last_step, last_time.
        with_state: True to write the optimizer's state too. Default: False.
        numbers: type of the numbers in the file: 'float32', 'int8' or 'int4'. With 'int8' or
            'int4', the file has the columns of `quantized_file` and no optimizer state, and cannot
            be a `.csv` file. Default: 'float32'.

    Raises:
        FileExistsError: `path` exists already.
        CheckpointError: a file of the chain is damaged, or no table has this name.
        ValueError: the suffix of `path` is unknown, `numbers` is unknown, or `numbers` conflicts
            with the suffix or with `with_state`.
    """
    check_rows(numbers)
    if numbers in BITS and (with_state or path.suffix == ".csv"):
        raise ValueError(
            f"rows of {numbers} are written to .parquet or .arrow files without state, "
            f"got {path.name!r}{' with state' if with_state else ''}"
        )
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
            if numbers in BITS:
                batch = to_quantised_batch(rows, numbers)
            else:
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
