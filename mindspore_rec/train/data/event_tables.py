# SPDX-License-Identifier: Apache-2.0
"""Find the tables that receive the event time of each batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore import nn

from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.columns.tables_of_features import tables_of_features
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["event_tables"]


def event_tables(specs: tuple[FeatureSpec, ...], tables: Any) -> tuple[HashTable, ...]:
    """Return the hash tables among `tables` in which features are looked up.

    Args:
        specs: features as returned by `check_specs`. If the timestamp is the only feature, every
            hash table is returned.
        tables: a network, or an iterable of tables.

    Raises:
        TypeError: `tables` is neither a network nor an iterable of tables.
        ValueError: no feature is the timestamp; a table that evicts by age is missing; or no
            feature is looked up in any of the tables.

    Example:
        >>> from mindspore_rec import MapParameter
        >>> specs = (FeatureSpec("doc.event"), FeatureSpec("time", is_timestamp=True))
        >>> [table.name for table in event_tables(specs, [MapParameter("doc.event")])]
        ['doc.event']
    """
    if isinstance(tables, nn.Cell):
        all_tables = tables_of(tables)
    else:
        if not isinstance(tables, Iterable):
            raise TypeError(f"tables must be a network or its tables, got {type(tables).__name__}")
        all_tables = list(tables)
        for table in all_tables:
            if not isinstance(table, TableParameter):
                raise TypeError(f"tables must be tables, got {type(table).__name__}")
    if not any(spec.is_timestamp for spec in specs):
        raise ValueError(
            "tables have their time set by a timestamp feature, and there is none: add a "
            "FeatureSpec with is_timestamp=True, or leave tables out"
        )
    hashed = (table for table in all_tables if isinstance(table, HashTable))
    return tables_of_features(specs, hashed)
