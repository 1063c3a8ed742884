# SPDX-License-Identifier: Apache-2.0
"""has_unsaved: whether a network has changed since a checkpoint, by whatever means."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from mindspore import nn

from mindspore_rec.checkpoint.array_file import read_arrays
from mindspore_rec.checkpoint.chain import Entry
from mindspore_rec.checkpoint.contents import DENSE
from mindspore_rec.checkpoint.dense import dense_arrays
from mindspore_rec.checkpoint.snapshot import describe
from mindspore_rec.parameter import TableParameter

__all__ = ["has_unsaved"]


def has_unsaved(
    cell: nn.Cell, tables: Mapping[str, TableParameter], marks: Mapping[str, int], entry: Entry
) -> bool:
    """Return whether rows, clocks and limits of tables, or dense parameters, are not as saved.

    Args:
        cell: the training cell.
        tables: the cell's tables by name.
        marks: marks of the tables by name, of the moment of the checkpoint.
        entry: the checkpoint.
    """
    if any(_has_changed(table, marks[name]) for name, table in tables.items()):
        return True
    saved = entry.manifest["tables"]
    for name, table in tables.items():
        if any(saved[name].get(what, value) != value for what, value in describe(table).items()):
            return True
    try:
        before, now = read_arrays(entry.path / DENSE), dense_arrays(cell)
    except OSError:  # it is saved anew then
        return True
    return before.keys() != now.keys() or any(
        before[name].tobytes() != array.tobytes() for name, array in now.items()
    )


def _has_changed(table: TableParameter, mark: int) -> bool:
    keys: np.ndarray = table.export_since(mark, sweep=False)["keys"]
    return len(keys) > 0
