# SPDX-License-Identifier: Apache-2.0
"""Load a checkpoint of a run into a network."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mindspore import Parameter, nn

from mindspore_rec.common.parallel.group import worker_group
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
from mindspore_rec.train.optim.asked_rates import newly_asked, note_rates, set_changed
from mindspore_rec.train.optim.ftrl import FTRL

__all__ = ["check_load", "load_chain"]

logger = logging.getLogger("mindspore_rec")


def load_chain(
    cell: nn.Cell,
    chain: Sequence[Entry],
    shares: TableShares | None = None,
    *,
    new_rates: bool = False,
) -> None:
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
        new_rates: whether the optimizer keeps a learning rate that differs from the rate for which
            the program asked when the checkpoint was written. If so, a warning is logged. Default:
            False, which means that the optimizer gets the learning rates of the checkpoint.

    Raises:
        CheckpointError: tables, parameters or optimizers do not match the checkpoint.
    """
    check_load(cell, chain, shares, new_rates=new_rates)
    last = chain[-1]
    rates = _new_rates(cell, last, warn=worker_group().rank == 0) if new_rates else []
    set_dense(cell, read_arrays(last.path / DENSE), last.path / DENSE, rates)
    set_changed(cell, {rate.name for rate in rates})
    load_tables({table.name: table for table in tables_of(cell)}, chain, shares)


def check_load(
    cell: nn.Cell,
    chain: Sequence[Entry],
    shares: TableShares | None = None,
    *,
    new_rates: bool = False,
) -> None:
    """Raise the errors that `load_chain` would raise, without changing anything."""
    last = chain[-1]
    tables = {table.name: table for table in tables_of(cell)}
    check_tables(tables, last)
    rates = _new_rates(cell, last) if new_rates else []
    matched(dense_parameters(cell, rates), read_arrays(last.path / DENSE), last.path / DENSE)
    check_whole_rows(list(tables), chain, shares)


def _new_rates(cell: nn.Cell, entry: Entry, warn: bool = False) -> list[Parameter]:
    """Return the rates that the optimizer keeps. Checkpoints of earlier versions have no rates."""
    note_rates(cell)
    saved = entry.manifest.get("asked_rates", {})
    rates = []
    for optimizer, rate, asked in newly_asked(cell, saved):
        # The state of FTRL is in units of 1 / rate, so another rate would change all weights.
        is_fixed = isinstance(optimizer, (FTRL, nn.FTRL))
        if not is_fixed:
            rates.append(rate)
        if warn:
            logger.warning(
                "%s is %s in the program, and was %s when %s was written: the training continues "
                "with %s",
                rate.name,
                asked,
                saved[rate.name],
                entry.path,
                "the saved rate, because the state of FTRL depends on it" if is_fixed else asked,
            )
    return rates
