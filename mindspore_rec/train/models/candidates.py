# SPDX-License-Identifier: Apache-2.0
"""Candidates: for each history of a schema, the vectors of its events and of the scored item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindspore import Tensor, nn, ops

from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.layout import Field
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.histories import HistoryLookup
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.nn.join import join_columns

__all__ = ["Candidates"]

_KINDS = ("category", "integer")  # columns with one key per row
_ZEROS = (-1, 0)  # place of a candidate's part that no column has


class Candidates(nn.Cell):
    """Pair the events of each history with the candidate, the item that the row scores.

    The vector of an event is the concatenation of the vectors of the event's keys: first the key in
    the history's column, then the keys in the side columns. The vector of the candidate has the
    same parts as the vector of an event, in the same order. Each part of the candidate's vector
    comes from the row's column that shares the part's table. If no column of the row shares the
    table of a side column, the side column's part is 0. Side columns of numbers, such as the times
    of events, are not read.

    Args:
        inputs: the first cell of a network that was made from a schema.
        model: name of the network, for error messages.

    Inputs:
        - **parts** (tuple): the output of `inputs`.
        - **arrays** (tuple): all inputs of the network after `ids`; see `HistoryLookup`.

    Outputs:
        Tuple with one triple (candidates, values, offsets) for each history: candidates float32
        `[B, dim]`, values float32 `[N, dim]`, offsets int64 `[B + 1]`.

    Attributes:
        dims: for each history, the width of the candidate's vector.

    Raises:
        TypeError: `inputs` was not made from a schema.
        ValueError: the schema has no history, or a history shares its table with none or several of
            the row's columns.
    """

    def __init__(self, inputs: InputLayer, model: str) -> None:
        super().__init__()
        self.lookup = HistoryLookup(inputs)
        schema: Schema = inputs.embedding.schema
        places = _places(schema)
        names = self.lookup.names
        values: list[tuple[int, ...]] = []  # indexes of the arrays of each history
        candidates: list[tuple[tuple[int, int], ...]] = []  # part and vector of each of the values
        offsets: list[int] = []
        for history in schema.histories:
            matches = [(each, _match(schema, each, model)) for each in history if each.has_rows]
            if not history[0].has_rows or matches[0][1] is None:
                raise _no_candidate(schema, history[0], model)
            values.append(tuple(names.index(f"{each.name}.values") for each, _ in matches))
            candidates.append(tuple(_ZEROS if f is None else places[f.name] for _, f in matches))
            offsets.append(names.index(f"{history[0].name}.offsets"))
        self.values, self.candidates = tuple(values), tuple(candidates)
        self.offsets = tuple(offsets)
        self.dims = tuple(sum(self.lookup.dims[k] for k in of) for of in values)
        self.joins = nn.CellList([join_columns(len(of)) for of in values])

    def construct(self, parts: Any, arrays: Any) -> Any:
        """Return, for each history, the candidates, the values and the offsets."""
        looked_up = self.lookup(arrays)
        made: Any = ()
        for k in range(len(self.offsets)):
            candidate: tuple[Tensor, ...] = ()
            values: tuple[Tensor, ...] = ()
            for i in range(len(self.values[k])):
                array = looked_up[self.values[k][i]]
                part, vector = self.candidates[k][i]
                values += (array,)
                if part >= 0:
                    candidate += (parts[part][:, vector],)
                else:
                    rows = parts[0].shape[0]
                    candidate += (ops.zeros((rows, array.shape[1]), array.dtype),)
            offsets = looked_up[self.offsets[k]]
            join = self.joins[k]
            made += ((join(*candidate), join(*values), offsets),)
        return made


def _places(schema: Schema) -> dict[str, tuple[int, int]]:
    """Return the place of each field's vector in the output of an `InputLayer`.

    The dict's keys are names of fields. A value is the pair (index of the part, index of the vector
    in the part).
    """
    places = {}
    part = 0
    for table in schema.tables:
        keys = [schema.fields[k].name for k in table.fields if not schema.fields[k].is_bag]
        places.update({name: (part, vector) for vector, name in enumerate(keys)})
        part += bool(keys) + len(table.fields) - len(keys)
    return places


def _sharing(schema: Schema, column: Column) -> Iterator[Field]:
    """Yield each field that has one key per row and shares the table of a history's column."""
    kinds = {each.name: each.kind for each in schema.columns}
    for table in schema.tables:
        if table.name is not None and column.name in table.histories:
            for number in table.fields:
                field = schema.fields[number]
                if kinds[field.column] in _KINDS:
                    yield field


def _match(schema: Schema, column: Column, model: str) -> Field | None:
    """Return the field that contains a history's candidate item; None if there is no such field.

    Raises:
        ValueError: several fields match the column.
    """
    columns = list(_sharing(schema, column))
    if len(columns) > 1:
        names = " and ".join(repr(each.name) for each in columns)
        raise ValueError(
            f"{model} compares the events of {column.name!r} with one column of the row, but "
            f"columns {names} share the table {column.table!r} with {column.name!r}: leave this "
            "table to the column of the item that is scored, and name other tables for the others"
        )
    return columns[0] if columns else None


def _no_candidate(schema: Schema, history: Column, model: str) -> ValueError:
    categories = [each.name for each in schema.columns if each.kind in _KINDS]
    if not history.has_rows:
        remedy = "make it a side column (side_of) of the history of items"
        if history.kept is not None:
            remedy = f"name the item first in 'of' of {history.kept.name!r}"
        return ValueError(
            f"{model} reads vectors of events, but history {history.name!r} has the values "
            f"{history.values!r}, which have no rows: {remedy}"
        )
    table = history.table or "items"
    if history.kept is not None and history.table is None:
        return ValueError(
            f"{model} compares the events of {history.name!r} with the item that is scored: set "
            f"table={table!r} of column {history.kept.of[0]!r} (table: {table} in YAML), which the "
            "history and the scored item share then"
        )
    needed = "the column" if history.table else "both columns"
    return ValueError(
        f"{model} compares the events of {history.name!r} with the item that is scored, but no "
        f"category of the row shares the table of {history.name!r}: set table={table!r} of "
        f"{needed} (table: {table} in YAML), the item's column being one of "
        f"{', '.join(categories) or 'none, so add it'}"
    )
