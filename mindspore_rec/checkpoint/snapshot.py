# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a network between two steps, from which checkpoints are written.

A full checkpoint is written directly from the tables, a part at a time. A `Delta` holds copies of
the changes and is written later: training waits only until the copies are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import nn

from mindspore_rec.checkpoint.array_file import write_arrays
from mindspore_rec.checkpoint.contents import DENSE
from mindspore_rec.checkpoint.counter_file import Counters, take_counters, write_counters
from mindspore_rec.checkpoint.dense import dense_arrays
from mindspore_rec.checkpoint.state_file import write_states
from mindspore_rec.checkpoint.table_file import (
    row_type,
    to_rows,
    write_keys,
    write_rows,
    write_table,
)
from mindspore_rec.parameter import MapParameter, TableParameter

__all__ = ["DENSE", "Delta", "admission_of", "check_has_rows", "describe", "write_full"]


def admission_of(table: TableParameter) -> str:
    """Return the kind of admission counters; tables of the same kind can exchange counters."""
    if not isinstance(table, MapParameter):
        return "none"
    arguments = table.admission.native_arguments()
    kind = str(arguments["admission_kind"])
    if kind != "sketch":
        return kind
    return f"sketch of {arguments['sketch_bytes']} bytes, {arguments['sketch_bits']} bits a counter"


def describe(table: TableParameter) -> dict[str, Any]:
    """Return a table's entry of a manifest without its files: shape, clock and age limits."""
    eviction = getattr(table, "eviction", None)
    return {
        "dim": table.dim,
        "key_dtype": str(table.key_dtype),
        "vocabulary": table.vocabulary,
        "state_width": table.state_width,
        "step": table.step,
        "event_time": table.event_time or 0,
        "first_time": table.first_time,
        "ages_at": list(table.horizon),
        "max_idle_steps": -1 if eviction is None else eviction.max_idle_steps,
        "max_idle_seconds": -1 if eviction is None else eviction.max_idle_seconds,
        "admission": admission_of(table),
    }


def check_has_rows(tables: Iterable[TableParameter]) -> None:
    """Raise RuntimeError if a table lacks its rows, which would be saved as an empty table.

    Raises:
        RuntimeError: weights without a table's rows were loaded into the network.
    """
    for table in tables:
        if table.rows_missing:
            raise RuntimeError(
                f"table '{table.name}': its rows were not in the checkpoint that was loaded, so "
                "that it cannot be saved: load them with mindspore_rec.load_checkpoint, or say "
                "by keep_rows() of the table that those it has now are right"
            )


def write_full(
    cell: nn.Cell,
    tables: Mapping[str, TableParameter],
    states: dict[str, Any],
    directory: Path,
) -> dict[str, Any]:
    """Write all rows, parameters and states; return the tables' entries of the manifest.

    Raises:
        OSError: a file cannot be written.
        RuntimeError: a table's rows are missing.
    """
    check_has_rows(tables.values())
    described = {}
    for i, (name, table) in enumerate(tables.items()):
        file = f"table_{i}.arrow"
        rows = write_table(table, directory / file)
        counters = write_counters(take_counters(table), directory / f"counters_{i}")
        described[name] = {**describe(table), "file": file, "rows": rows, "counters": counters}
    write_arrays(dense_arrays(cell), directory / DENSE)
    write_states(states, directory)
    return described


@dataclass(frozen=True)
class _Changes:
    described: dict[str, Any]
    arrays: dict[str, np.ndarray]
    counters: Counters


class Delta:
    """Copies of the changes of a network since marks of its tables.

    Args:
        cell: the training cell.
        tables: the cell's tables by name.
        marks: marks of the tables by name, since which changes are copied.
        states: other states to write; not copied.

    Raises:
        RuntimeError: a table's rows are missing.
    """

    def __init__(
        self,
        cell: nn.Cell,
        tables: Mapping[str, TableParameter],
        marks: Mapping[str, int],
        states: dict[str, Any],
    ) -> None:
        check_has_rows(tables.values())
        self._changes = {
            name: _Changes(
                describe(table),
                table.export_since(marks[name], with_state=True, sweep=False),
                take_counters(table),
            )
            for name, table in tables.items()
        }
        self._dense = dense_arrays(cell)
        self._states = states

    def write(self, directory: Path) -> dict[str, Any]:
        """Write the files; return the tables' entries of the manifest.

        Raises:
            OSError: a file cannot be written.
        """
        described = {}
        for i, (name, changes) in enumerate(self._changes.items()):
            arrays = dict(changes.arrays)
            present = arrays.pop("present")
            dtype = row_type(changes.described["dim"], changes.described["state_width"])
            rows = to_rows({key: array[present] for key, array in arrays.items()}, dtype)
            rows = rows[np.argsort(rows["key"])]
            files = {"file": f"table_{i}.arrow", "deleted": f"deleted_{i}.arrow"}
            write_rows([rows], dtype, directory / files["file"])
            gone = arrays["keys"][~present]
            write_keys(gone, directory / files["deleted"])
            counters = write_counters(changes.counters, directory / f"counters_{i}")
            counts = {"rows": len(rows), "deleted_rows": len(gone), "counters": counters}
            described[name] = {**changes.described, **files, **counts}
        write_arrays(self._dense, directory / DENSE)
        write_states(self._states, directory)
        return described
