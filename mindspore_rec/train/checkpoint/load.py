# SPDX-License-Identifier: Apache-2.0
"""Load a checkpoint of a run into a network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn

from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.load_tables import (
    TableShares,
    check_tables,
    check_whole_rows,
    load_tables,
)
from mindspore_rec.common.run.matching import matched
from mindspore_rec.train.checkpoint.dense import dense_parameters, set_dense
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["check_load", "load_chain"]


def load_chain(cell: nn.Cell, chain: Sequence[Entry], shares: TableShares | None = None) -> None:
    """Load the last state of a checkpoint chain: tables, parameters and optimizer state.

    All checks are made before any table or parameter changes. All rows that were in the tables
    before the call are dropped.

    Args:
        cell: a network or a training cell. If `cell` is a training cell, the parameters of its
            optimizer are loaded too.
        chain: checkpoints from `newest_chain`. Call `verify_chain` first, to check the files of the
            chain.
        shares: for each table, the share of keys whose rows are loaded; None if this worker has no
            keys of the table. Default: None, which means all keys of all tables.

    Raises:
        CheckpointError: tables, parameters or optimizers do not match the checkpoint.
    """
    check_load(cell, chain, shares)
    last = chain[-1]
    set_dense(cell, read_arrays(last.path / DENSE), last.path / DENSE)
    load_tables({table.name: table for table in tables_of(cell)}, chain, shares)


def check_load(cell: nn.Cell, chain: Sequence[Entry], shares: TableShares | None = None) -> None:
    """Raise the errors that `load_chain` would raise, without changing anything."""
    last = chain[-1]
    tables = {table.name: table for table in tables_of(cell)}
    check_tables(tables, last)
    matched(dense_parameters(cell), read_arrays(last.path / DENSE), last.path / DENSE)
    check_whole_rows(list(tables), chain, shares)
