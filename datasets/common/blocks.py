# SPDX-License-Identifier: Apache-2.0
"""A batch: a dict of named arrays with the same number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

__all__ = ["DTYPES", "Batch", "check_batch", "rebatch", "row_count", "take_rows"]

Batch = dict[str, np.ndarray]
"""``ids`` int64 [B, F], ``dense`` float32 [B, N], ``label`` float32 [B, T]; ``bayes`` float32
[B, 1], the true probability of a planted label, where there is one."""

DTYPES: Mapping[str, str] = {
    "ids": "int64",
    "dense": "float32",
    "label": "float32",
    "bayes": "float32",
}


def row_count(batch: Batch) -> int:
    """Return the number of rows of a batch.

    Example:
        >>> row_count({"ids": np.zeros((3, 2), np.int64)})
        3
    """
    return len(next(iter(batch.values())))


def check_batch(batch: Batch) -> None:
    """Raise an error if a batch's columns are invalid or differ in their number of rows.

    Args:
        batch: The batch to check.

    Raises:
        ValueError: no column is given; a column is unknown, has a wrong dtype or is not
            two-dimensional; or the columns have different numbers of rows.

    Example:
        >>> check_batch({"ids": np.zeros((3, 2), np.int32)})
        Traceback (most recent call last):
        ...
        ValueError: column 'ids' must be int64 [rows, width], got int32 [3, 2]
    """
    if not batch:
        raise ValueError("batch must have at least one column")
    for name, array in batch.items():
        if name not in DTYPES:
            raise ValueError(f"column {name!r} is not one of {sorted(DTYPES)}")
        if array.dtype != DTYPES[name] or array.ndim != 2:
            text = f"{array.dtype} {list(array.shape)}"
            raise ValueError(f"column {name!r} must be {DTYPES[name]} [rows, width], got {text}")
    if len({len(array) for array in batch.values()}) > 1:
        text = ", ".join(f"{name} {len(array)}" for name, array in batch.items())
        raise ValueError(f"columns must have the same number of rows, got {text}")


def take_rows(batch: Batch, rows: slice | np.ndarray) -> Batch:
    """Return rows of every column: views if `rows` is a slice, copies if `rows` is an array."""
    return {name: array[rows] for name, array in batch.items()}


def rebatch(blocks: Iterable[Batch], batch_size: int) -> Iterator[Batch]:
    """Regroup batches of any sizes into batches of one size; the rows keep their order.

    Args:
        blocks: Batches with the same columns; empty batches are allowed.
        batch_size: Rows per batch, at least 1.

    Yields:
        Batches of ``batch_size`` rows; the last batch may have fewer rows. A batch's arrays may be
        views of a block's rows, but two batches never share a row.

    Raises:
        ValueError: ``batch_size`` is below 1.

    Example:
        >>> blocks = [{"ids": np.zeros((n, 2), np.int64)} for n in (3, 0, 4)]
        >>> [len(batch["ids"]) for batch in rebatch(blocks, 2)]
        [2, 2, 2, 1]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    parts: list[Batch] = []
    held_rows = 0
    for block in blocks:
        start, rows = 0, row_count(block)
        while held_rows + rows - start >= batch_size:
            end = start + batch_size - held_rows
            parts.append(take_rows(block, slice(start, end)))
            yield _concatenate(parts)
            parts, held_rows, start = [], 0, end
        if start < rows:
            parts.append(take_rows(block, slice(start, rows)))
            held_rows += rows - start
    if parts:
        yield _concatenate(parts)


def _concatenate(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
