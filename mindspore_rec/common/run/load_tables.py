# SPDX-License-Identifier: Apache-2.0
"""Load a state of a run into tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec.common.rows.host_table import HostTable
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.counter_file import admission_of, read_counters
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.rows import (
    check_alike,
    deleted_keys,
    rounded,
    rows_at,
    table_entry,
    table_rows,
)
from mindspore_rec.common.run.share import ALL, Share, parts_of
from mindspore_rec.common.run.table_file import to_arrays

__all__ = ["TableShares", "TableUpdate", "check_tables", "check_whole_rows", "load_tables"]

TableShares = Mapping[str, Share | None]


def load_tables(
    tables: Mapping[str, HostTable], chain: Sequence[Entry], shares: TableShares | None = None
) -> None:
    """Set rows, clocks and counters of tables to the state of a chain.

    Args:
        tables: dict from name to table. The tables must have passed `check_tables` and
            `check_whole_rows`.
        chain: as for `load_chain`.
        shares: as for `load_chain`.
    """
    last = chain[-1]
    for name, table in tables.items():
        share = ALL if shares is None else shares[name]
        table.clear_rows()
        _set_clock(table, table_entry(last, name))
        if share is not None:
            for rows in rows_at(chain, name, share):
                if len(rows):
                    table.import_rows(**to_arrays(rows, table.has_optimizer))
            if table.counts_keys:
                read_counters(table, _counter_files(last, name), share)
        table.rows_missing = False


def check_whole_rows(
    names: Sequence[str], chain: Sequence[Entry], shares: TableShares | None = None
) -> None:
    """Raise CheckpointError if the checkpoints of a chain do not fit together for a table.

    A table's shape and key dtype must not change. If the optimizer was replaced, every row must
    have the state of the newest optimizer.
    """
    for name in names:
        check_alike(chain, name)
        if len({table_entry(entry, name)["state_width"] for entry in chain}) > 1:
            # Reading all rows checks that every row has the state of the newest optimizer.
            share = ALL if shares is None else shares[name]
            for _ in () if share is None else rows_at(chain, name, share):
                pass


def _counter_files(entry: Entry, name: str) -> list[Path | None]:
    counters = [part["counters"] for part in parts_of(table_entry(entry, name))]
    return [None if file is None else entry.path / file for file in counters]


def check_tables(tables: Mapping[str, HostTable], entry: Entry) -> None:
    """Check that tables have the same names, shapes, admission and optimizers as in a checkpoint.

    Raises:
        CheckpointError: a table of the network differs from the checkpoint.
    """
    if tables.keys() != entry.manifest["tables"].keys():
        raise CheckpointError(
            f"the network's tables are {sorted(tables)}, the tables of {entry.path} are "
            f"{sorted(entry.manifest['tables'])}: they must be the same"
        )
    for name, table in tables.items():
        _check_table(table, table_entry(entry, name), entry.path)


def _check_table(table: HostTable, saved: dict[str, Any], source: Path) -> None:
    now = {"dim": table.dim, "key_dtype": str(table.key_dtype), "vocabulary": table.vocabulary}
    for what, value in now.items():
        if saved[what] != value:
            raise CheckpointError(
                f"table '{table.name}' has {what} {value}, in {source} it has {saved[what]!s:.100}"
            )
    for part in parts_of(saved):
        if part["counters"] is not None and table.counts_keys:
            _check_counting(table, saved["admission"], source / part["counters"])
    width = table.state_width
    if table.has_optimizer and width != saved["state_width"]:
        raise CheckpointError(
            f"table '{table.name}' has {width} floats of state a row, {source} has "
            f"{saved['state_width']}: the optimizer and the order of eviction by capacity must be "
            "as saved"
        )


def _check_counting(table: HostTable, admission: str, path: Path) -> None:
    if admission_of(table) != admission:
        raise CheckpointError(
            f"table '{table.name}' admits by {admission_of(table)}, {path.parent} has the counts "
            f"of {admission:.100}"
        )
    if path.suffix == ".sketch":
        now, size = len(table.export_sketch()), path.stat().st_size
        if now != size:
            raise CheckpointError(
                f"table '{table.name}' has a sketch of {now} bytes, {path} has {size}"
            )


def _set_clock(table: HostTable, saved: dict[str, Any]) -> None:
    table.set_clock(saved["step"], saved["event_time"])
    table.set_horizon(*saved["ages_at"])


class TableUpdate:
    """The changes that a checkpoint makes to one table, read into memory but not yet applied.

    Args:
        entry: a delta, or a full checkpoint, which replaces all rows.
        name: name of the table.
        later: dtypes that the rows got in later checkpoints of a chain, see `later_dtypes`. The
            rows of `entry` are rounded to these dtypes. Default: none.

    Raises:
        CheckpointError: the checkpoint lacks the table, or a file of the checkpoint is damaged.
    """

    def __init__(self, entry: Entry, name: str, later: Sequence[np.dtype] = ()) -> None:
        self._saved = table_entry(entry, name)
        self._replaces = entry.kind == "full"
        self._deleted = deleted_keys(entry, name)
        parts = (rounded(rows, later) for rows in table_rows(entry, name))
        self._parts = [to_arrays(rows) for rows in parts if len(rows)]

    def apply(self, table: HostTable) -> None:
        """Apply the change to the table. No other thread may change the table during this call.

        Optimizer state is ignored if the table has no optimizer.
        """
        saved = self._saved
        if self._replaces:
            table.clear_rows()
            _set_clock(table, saved)
        elif table.event_time is None and saved["first_time"]:
            table.set_event_time(saved["first_time"])  # older rows get it
        if len(self._deleted) and not table.vocabulary:
            table.erase_rows(self._deleted)
        for arrays in self._parts:
            rows = dict(arrays)
            if not table.has_optimizer:
                rows.pop("states", None)
            table.import_rows(**rows)
        if not self._replaces:
            _set_clock(table, saved)
