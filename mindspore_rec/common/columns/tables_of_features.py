# SPDX-License-Identifier: Apache-2.0
"""Find the hash tables of features, to set the event time of a batch on these tables."""

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
    """Return the hash tables in `tables` that the features use.

    Args:
        specs: features that `check_specs` has returned. If the timestamp is the only feature, every
            hash table is returned.
        tables: tables to choose from, of any class.

    Raises:
        ValueError: `tables` contains none of the features' tables, or a table that evicts by age is
            missing.
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
    """Call `tables_of_features` for a network's tables; error messages then mention the network.

    Raises:
        ValueError: see `tables_of_features`.
    """
    try:
        return list(tables_of_features(specs, tables))
    except ValueError as error:
        raise ValueError(f"the network's {error}") from error
