# SPDX-License-Identifier: Apache-2.0
"""Functions that detect whether a network has changed since a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from mindspore import nn

from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.train.checkpoint.dense import dense_arrays
from mindspore_rec.train.checkpoint.snapshot import describe
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["differs_from", "has_changed"]


def has_changed(table: TableParameter, mark: int) -> bool:
    """Return whether rows of a table have changed since the point in time `mark`."""
    keys: np.ndarray = table.export_since(mark, sweep=False)["keys"]
    return len(keys) > 0


def differs_from(cell: nn.Cell, tables: Mapping[str, TableParameter], entry: Entry) -> bool:
    """Return whether table clocks, table limits or dense parameters differ from a checkpoint.

    Args:
        cell: the training cell.
        tables: the cell's tables by name.
        entry: the checkpoint.

    Raises:
        OSError: the checkpoint cannot be read.
    """
    saved = entry.manifest["tables"]
    for name, table in tables.items():
        now = describe(table)
        del now["first_time"]  # loaded rows have times, so a restart has no first time
        if any(saved[name].get(what, value) != value for what, value in now.items()):
            return True
    before, weights = read_arrays(entry.path / DENSE), dense_arrays(cell)
    return before.keys() != weights.keys() or any(
        before[name].tobytes() != array.tobytes() for name, array in weights.items()
    )
