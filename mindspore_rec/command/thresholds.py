# SPDX-License-Identifier: Apache-2.0
"""Propose admission thresholds for a schema, by a dry run over the first rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.inference import Inferred, InferredColumn
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.plan.admission import propose_admission
from mindspore_rec.plan.sizes import row_bytes

__all__ = ["with_thresholds"]

_BATCH = 4096
_ROWS = 2_000_000  # of the dry run
_SAMPLE_SHARE = 10  # a column with fewer values than rows / this in the sample has few keys


def with_thresholds(inferred: Inferred, rows: Rows, least_keys: int = 100_000) -> Inferred:
    """Add an admission threshold to each column for which the threshold saves memory.

    For each category with many values, the function counts the values of the first two million
    rows.

    Args:
        inferred: the proposed schema.
        rows: the rows, in the order of training.
        least_keys: a table with fewer different keys is small and gets no threshold. Default:
            100,000.
    """
    entries = tuple(
        _with_threshold(entry, inferred.rows, rows, least_keys) for entry in inferred.entries
    )
    return dataclasses.replace(inferred, entries=entries)


def _with_threshold(
    entry: InferredColumn, sample_rows: int, rows: Rows, least_keys: int
) -> InferredColumn:
    column = entry.column
    if column.kind != "category" or entry.distinct * _SAMPLE_SHARE < sample_rows:
        return entry
    bytes_of_row = row_bytes(Schema([_keys_only(column)]).embedding_dim, "LazyAdam")
    proposal = propose_admission(_keys(column, rows), bytes_of_row, least_keys)
    if proposal is None:
        return entry
    with_admission: Column = dataclasses.replace(column, admission=proposal.admission)  # type: ignore[type-var]
    why = f"{entry.why} {proposal.sentence}"
    return dataclasses.replace(entry, column=with_admission, why=why)


def _keys_only(column: Column) -> Column:
    """Return a copy of the column without statistics, because statistics need a label."""
    made: Column = dataclasses.replace(column, statistics=None)  # type: ignore[type-var]
    return made


def _keys(column: Column, rows: Rows) -> Iterator[np.ndarray]:
    """Yield the keys of a column, one array per training batch."""
    schema, left = Schema([_keys_only(column)]), _ROWS
    for part in rows.select([column.name]):
        for start in range(0, min(part.num_rows, left), _BATCH):
            batch = part.slice(start, min(_BATCH, left - start))
            yield schema.arrays_of(batch, with_label=False)["ids"][:, 0]
        left -= min(part.num_rows, left)
        if not left:
            return
