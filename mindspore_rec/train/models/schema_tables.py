# SPDX-License-Identifier: Apache-2.0
"""Tables of a schema, and the columns of `ids` that each lookup reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mindspore_rec.common.columns.kept_events import table_suffix
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.rows.policies import CountAdmission, Eviction
from mindspore_rec.train.parameter.hash_table import HashTable
from mindspore_rec.train.parameter.table_config import TableConfig

__all__ = ["Window", "table_config", "users_tables", "windows_of"]


class Window(NamedTuple):
    """Consecutive columns of `ids` that one lookup reads: single keys of one table, or one bag.

    `dropout` contains, for each column, the probability that a training step drops the column's
    key.
    """

    group: int
    start: int
    stop: int
    is_bag: bool
    dropout: tuple[float, ...]

    @property
    def vectors(self) -> int:
        """Number of vectors that the lookup returns."""
        return 1 if self.is_bag else self.stop - self.start

    @property
    def drops(self) -> bool:
        """True if training steps drop keys."""
        return any(self.dropout)


def windows_of(schema: Schema) -> Iterator[Window]:
    """For each lookup, yield the columns that the lookup reads, in the order of the fields.

    For each table, the columns of single keys are consecutive, and come before the columns of bags.
    """
    for group, table in enumerate(schema.tables):
        fields = [schema.fields[number] for number in table.fields]
        keys = [field for field in fields if not field.is_bag]
        if keys:
            dropout = tuple(field.dropout for field in keys)
            yield Window(group, keys[0].start, keys[-1].stop, False, dropout)
        for field in fields[len(keys) :]:
            yield Window(group, field.start, field.stop, True, (0.0,) * field.length)


def table_config(
    schema: Schema, group: int, name: str, seed: int, weights: bool = False
) -> TableConfig:
    """Return the description of a group's table.

    Args:
        schema: the schema.
        group: index of the group in `schema.tables`.
        name: name of the first group's table.
        seed: seed of the initial values.
        weights: True for a table of first-order weights. Default: False.

    Raises:
        ValueError: the schema has a named table and a numbered table of the same name.
    """
    described = schema.tables[group]
    seconds = described.eviction
    settings = (described.embedding_dim, described.admission, seconds)
    if described.name is None and settings != (schema.embedding_dim, None, None):
        name += f".{group}"
        if str(group) in [each.name for each in schema.tables]:
            raise ValueError(
                f"table '{group}' of the schema has the name of a table that is numbered: choose "
                "a name that is no number"
            )
    elif described.name is not None:
        name += f".{described.name}"
    return TableConfig(
        1 if weights else described.embedding_dim,
        name=name,
        initializer="zeros" if weights else "normal",
        seed=seed,
        admission=None if described.admission is None else CountAdmission(described.admission),
        eviction=None if seconds is None else Eviction(max_idle_seconds=seconds),
        unknown_value=0.0,
    )


def users_tables(schema: Schema, name: str) -> list[HashTable]:
    """Return one table for each `KeptHistoryColumn`; each row belongs to one user.

    Training writes the last events of each user to the user's row; optimizers do not change the
    rows.

    Args:
        schema: the schema.
        name: name of the network.
    """
    return [
        HashTable(
            TableConfig(
                kept.row_floats,
                name=name + table_suffix(kept.name),
                initializer="zeros",
                requires_grad=False,
                eviction=Eviction(max_idle_seconds=kept.idle_seconds)
                if kept.idle_seconds
                else None,
            )
        )
        for kept in schema.pipeline.kept
    ]
