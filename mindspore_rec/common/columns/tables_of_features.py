# SPDX-License-Identifier: Apache-2.0
"""Hash tables in which features are looked up: they get the event time of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.rows.host_table import HostTable

__all__ = ["network_event_tables", "tables_of_features"]

TableT = TypeVar("TableT", bound=HostTable)


def tables_of_features(
    specs: tuple[FeatureSpec, ...], tables: Iterable[TableT]
) -> tuple[TableT, ...]:
    """Return the hash tables among `tables` that features are looked up in.

    Args:
        specs: features, as `check_specs` returns them. If the timestamp is the only one, every hash
            table gets the time.
        tables: tables of any kind.

    Raises:
        ValueError: a table that evicts by age, or every table, is not among them.
    """
    wanted = {spec.table_name for spec in specs if not spec.is_timestamp}
    hashed = [table for table in tables if not table.vocabulary]
    chosen = tuple(table for table in hashed if not wanted or table.name in wanted)
    names = {table.name for table in chosen}
    for spec in specs:
        if spec.idle_seconds is not None and spec.table_name not in names:
            raise ValueError(
                f"tables must have '{spec.table_name}', which evicts by age (feature "
                f"'{spec.name}'), got {sorted(names)}"
            )
    if not chosen:
        raise ValueError(f"tables must have at least one of {sorted(map(str, wanted))}, got none")
    return chosen


def network_event_tables(specs: tuple[FeatureSpec, ...], tables: Iterable[TableT]) -> list[TableT]:
    """Return `tables_of_features` of the tables of a network; messages say whose tables they are.

    Raises:
        ValueError: as for `tables_of_features`.
    """
    try:
        return list(tables_of_features(specs, tables))
    except ValueError as error:
        raise ValueError(f"the network's {error}") from error
