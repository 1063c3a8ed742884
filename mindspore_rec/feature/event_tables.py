# SPDX-License-Identifier: Apache-2.0
"""Tables whose event time is set from a batch's timestamps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import nn

from mindspore_rec.feature.feature_spec import FeatureSpec
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.parameter import MapParameter, TableParameter

__all__ = ["event_tables", "network_event_tables"]


def event_tables(specs: tuple[FeatureSpec, ...], tables: Any) -> tuple[MapParameter, ...]:
    """Return the hash tables among `tables` that features are looked up in.

    Args:
        specs: features, as `check_specs` returns them. Where the timestamp is the only one, every
            hash table gets the time.
        tables: a network, or tables.

    Raises:
        TypeError: `tables` are something else.
        ValueError: no feature is the timestamp; a table that evicts by age, or every table, is not
            among them.

    Example:
        >>> specs = (FeatureSpec("doc.event"), FeatureSpec("time", is_timestamp=True))
        >>> [table.name for table in event_tables(specs, [MapParameter("doc.event")])]
        ['doc.event']
    """
    if isinstance(tables, nn.Cell):
        given = tables_of(tables)
    else:
        if not isinstance(tables, Iterable):
            raise TypeError(f"tables must be a network or its tables, got {type(tables).__name__}")
        given = list(tables)
        for table in given:
            if not isinstance(table, TableParameter):
                raise TypeError(f"tables must be tables, got {type(table).__name__}")
    if not any(spec.is_timestamp for spec in specs):
        raise ValueError(
            "tables have their time set by a timestamp feature, and there is none: add a "
            "FeatureSpec with is_timestamp=True, or leave tables out"
        )
    wanted = {spec.table_name for spec in specs if not spec.is_timestamp}
    hashed = [table for table in given if isinstance(table, MapParameter)]
    found = tuple(table for table in hashed if not wanted or table.name in wanted)
    names = {table.name for table in found}
    for spec in specs:
        if spec.idle_seconds is not None and spec.table_name not in names:
            raise ValueError(
                f"tables must have '{spec.table_name}', which evicts by age (feature "
                f"'{spec.name}'), got {sorted(names)}"
            )
    if not found:
        raise ValueError(f"tables must have at least one of {sorted(map(str, wanted))}, got none")
    return found


def network_event_tables(
    specs: tuple[FeatureSpec, ...], tables: Iterable[TableParameter]
) -> list[MapParameter]:
    """Return `event_tables` of the tables of a network; messages say whose tables they are.

    Raises:
        ValueError: as for `event_tables`.
    """
    try:
        return list(event_tables(specs, tables))
    except ValueError as error:
        raise ValueError(f"the network's {error}") from error
