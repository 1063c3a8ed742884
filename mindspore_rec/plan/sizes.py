# SPDX-License-Identifier: Apache-2.0
"""Bytes of a row in memory."""

from __future__ import annotations

from collections.abc import Callable

from mindspore_rec.checks import check_int, check_one_of

__all__ = ["COUNTER_BYTES", "OPTIMIZERS", "row_bytes"]

_METADATA_BYTES = 20  # key, count, last step, last time: csrc/table/row_layout.h
_INDEX_BYTES = 8  # of the index, for each row, at its usual load
COUNTER_BYTES = _METADATA_BYTES + _INDEX_BYTES  # of a key that is counted and not admitted

_MAX_DIM = 8192

# Floats of optimizer state a row of so many floats has: csrc/optim/rule.cc.
OPTIMIZERS: dict[str, Callable[[int], int]] = {
    "Adagrad": lambda dim: dim,
    "Adam": lambda dim: 2 * dim,
    "AdamW": lambda dim: 2 * dim,
    "FTRL": lambda dim: 2 * dim,
    "LazyAdam": lambda dim: 2 * dim,
    "Momentum": lambda dim: dim,
    "RMSProp": lambda dim: 2 * dim,
    "RMSProp-centered": lambda dim: 3 * dim,
    "RowWiseAdagrad": lambda dim: 1,
    "SGD": lambda dim: 0,
}


def row_bytes(dim: int, optimizer: str) -> int:
    """Return the bytes of a row: metadata, its part of the index, value and optimizer state.

    Spare room of slabs and index for growth is not counted.

    Args:
        dim: floats of the value, 1 to 8192.
        optimizer: a name of `OPTIMIZERS`.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> row_bytes(16, "LazyAdam"), row_bytes(16, "SGD")
        (220, 92)
    """
    check_int("dim", dim, 1, _MAX_DIM)
    check_one_of("optimizer", optimizer, tuple(OPTIMIZERS))
    return COUNTER_BYTES + 4 * (dim + OPTIMIZERS[optimizer](dim))
