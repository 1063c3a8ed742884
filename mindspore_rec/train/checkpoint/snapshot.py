# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a network between two steps, for writing checkpoints.

A full checkpoint is written directly from the tables, one part at a time. A `Delta` contains copies
of the changes and is written later. For a delta, training waits only while the changes are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import nn

from mindspore_rec.common.digests.digest import to_text
from mindspore_rec.common.run.array_file import write_arrays
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.counter_file import (
    Counters,
    admission_of,
    take_counters,
    write_counters,
)
from mindspore_rec.common.run.share import Share, Shares, file_name
from mindspore_rec.common.run.state_file import write_states
from mindspore_rec.common.run.table_file import (
    described_type,
    file_dtypes,
    own_rows,
    to_rows,
    write_keys,
    write_rows,
    write_table,
)
from mindspore_rec.train.checkpoint.dense import dense_arrays
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["DENSE", "Delta", "check_has_rows", "describe", "write_full"]


def describe(table: TableParameter) -> dict[str, Any]:
    """Return a table's shape, clock and age limits, for the table's entry in the manifest."""
    eviction = getattr(table, "eviction", None)
    return {
        "dim": table.dim,
        "key_dtype": str(table.key_dtype),
        "vocabulary": table.vocabulary,
        "state_width": table.state_width,
        **file_dtypes(table),
        "step": table.step,
        "event_time": table.event_time or 0,
        "first_time": table.first_time,
        "ages_at": list(table.horizon),
        "max_idle_steps": -1 if eviction is None else eviction.max_idle_steps,
        "max_idle_seconds": -1 if eviction is None else eviction.max_idle_seconds,
        "admission": admission_of(table),
    }


def check_has_rows(tables: Iterable[TableParameter]) -> None:
    """Raise RuntimeError if a table's rows are missing: a checkpoint would contain an empty table.

    Raises:
        RuntimeError: the weights that were loaded into the network do not include the rows of a
            table.
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
    shares: Shares | None = None,
) -> dict[str, Any]:
    """Write all rows, parameters and states; return the tables' manifest entries.

    Args:
        cell: the training cell, or a network.
        tables: the cell's tables by name.
        states: states of objects outside the network.
        directory: directory for the files.
        shares: the part of the network that this worker writes. Default: None, which means the
            whole network.

    Raises:
        OSError: a file cannot be written.
        RuntimeError: a table's rows are missing, or a row belongs to another worker.
    """
    check_has_rows(tables.values())
    shares = Shares() if shares is None else shares
    described = {}
    for i, (name, table) in enumerate(tables.items()):
        share = shares.saved(table, i)
        if share is None:
            continue
        file = file_name("table", i, share) + ".arrow"
        rows, digest = write_table(table, directory / file, share)
        path = directory / file_name("counters", i, share)
        counters = write_counters(take_counters(table), path)
        described[name] = {
            **describe(table),
            "file": file,
            "rows": rows,
            "counters": counters,
            "digest": digest,
        }
    if shares.worker == 0:
        write_arrays(dense_arrays(cell), directory / DENSE)
    write_states(states, directory, shares.worker)
    return described


@dataclass(frozen=True)
class _Changes:
    number: int  # index of the table
    share: Share
    described: dict[str, Any]
    arrays: dict[str, np.ndarray]
    counters: Counters


class Delta:
    """Copies of the dense parameters, and of each table's changes after a given point in time.

    Args:
        cell: the training cell.
        tables: the cell's tables by name.
        marks: dict from table names to marks, which are points in time. Each table's changes after
            its mark are copied.
        states: states of objects outside the network; the snapshot uses these states without
            copying them.
        shares: the part of the network that this worker writes. Default: None, which means the
            whole network.

    Raises:
        RuntimeError: a table's rows are missing, or a row belongs to another worker.
    """

    def __init__(
        self,
        cell: nn.Cell,
        tables: Mapping[str, TableParameter],
        marks: Mapping[str, int],
        states: dict[str, Any],
        shares: Shares | None = None,
    ) -> None:
        check_has_rows(tables.values())
        shares = Shares() if shares is None else shares
        self._changes: dict[str, _Changes] = {}
        for i, (name, table) in enumerate(tables.items()):
            share = shares.saved(table, i)
            if share is not None:
                changes = table.export_since(marks[name], with_state=True, sweep=False)
                self._changes[name] = _Changes(
                    i, share, describe(table), own_rows(changes, share), take_counters(table)
                )
        self._digests: dict[str, int | None] = {}
        self._worker = shares.worker
        self._dense = dense_arrays(cell) if self._worker == 0 else None
        self._states = states

    def take_digests(self, tables: Mapping[str, TableParameter]) -> None:
        """Store the digests of the tables' rows.

        The digests describe the tables after this delta. Call `marks.new()` of all tables before
        `take_digests`. No row has changed since the copy, so no digest is computed again.
        """
        self._digests = {name: tables[name].marks.kept_digest() for name in self._changes}

    def write(self, directory: Path) -> dict[str, Any]:
        """Write the files; return the manifest's entries for the tables.

        Raises:
            OSError: a file cannot be written.
        """
        described = {}
        for name, changes in self._changes.items():
            names = [file_name(k, changes.number, changes.share) for k in ("table", "deleted")]
            files = {"file": f"{names[0]}.arrow", "deleted": f"{names[1]}.arrow"}
            arrays = dict(changes.arrays)
            present = arrays.pop("present")
            dtype = described_type(changes.described)
            rows = to_rows({key: array[present] for key, array in arrays.items()}, dtype)
            rows = rows[np.argsort(rows["key"])]
            write_rows([rows], dtype, directory / files["file"])
            gone = arrays["keys"][~present]
            write_keys(gone, directory / files["deleted"])
            path = directory / file_name("counters", changes.number, changes.share)
            counters = write_counters(changes.counters, path)
            counts = {"rows": len(rows), "deleted_rows": len(gone), "counters": counters}
            kept = self._digests.get(name)
            digest = {} if kept is None else {"digest": to_text(kept)}
            described[name] = {**changes.described, **files, **counts, **digest}
        if self._dense is not None:
            write_arrays(self._dense, directory / DENSE)
        write_states(self._states, directory, self._worker)
        return described
