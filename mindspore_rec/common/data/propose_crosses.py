# SPDX-License-Identifier: Apache-2.0
"""Propose crosses (pairs of columns) for a schema, from a part of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.hashing import mix64
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.inference import Inferred
from mindspore_rec.common.columns.schema.proposed_crosses import with_crosses
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows

__all__ = ["propose_crosses"]

_READ_ROWS = 2_000_000  # the first of the data
_KEPT_ROWS = 250_000


def propose_crosses(inferred: Inferred, rows: Rows) -> Inferred:
    """Return a proposed schema, extended by pairs of columns with useful statistics.

    Some values of the column with the most values are chosen, and all rows with the chosen values
    are read. In a random sample of the rows, too few pairs of values would occur twice. The chosen
    values occur in at most 250,000 of the first two million rows.

    Args:
        inferred: the proposal.
        rows: the rows.
    """
    entries = [each for each in inferred.entries if each.column.statistics is not None]
    if len(entries) < 2:
        return inferred
    most = max(entries, key=lambda each: each.distinct).column
    names = [each.column.name for each in inferred.entries if each.column.kind != "ignored"]
    table = _rows_of_values(rows.select(names), replace(most, statistics=None))  # type: ignore[type-var]
    return with_crosses(inferred, table)


def _rows_of_values(rows: Rows, column: Column) -> pa.Table:
    """Read the first rows, choose values of a column, and return the rows with these values."""
    schema = Schema([column])
    kept: list[tuple[np.ndarray, pa.RecordBatch]] = []
    read, most = 0, np.uint64(2**64 - 1)  # the greatest hash of the values that are kept
    for part in rows:
        batch = part.slice(0, _READ_ROWS - read)
        read += batch.num_rows
        keys = schema.arrays_of(batch.select([column.name]), with_label=False)["ids"][:, 0]
        kept.append(_up_to(most, mix64(keys.view(np.uint64)), batch))
        while sum(len(hashes) for hashes, _ in kept) > _KEPT_ROWS and most > 0:
            most = most >> np.uint64(1)
            kept = [_up_to(most, *each) for each in kept]
        if read >= _READ_ROWS:
            break
    return pa.Table.from_batches([batch for _, batch in kept], rows.arrow_schema)


def _up_to(
    most: np.uint64, hashes: np.ndarray, batch: pa.RecordBatch
) -> tuple[np.ndarray, pa.RecordBatch]:
    """Return the hashes up to the bound `most`, and the rows of `batch` that have these hashes."""
    chosen = hashes <= most
    return hashes[chosen], batch.filter(pa.array(chosen))
