# SPDX-License-Identifier: Apache-2.0
"""Formats of messages with the columns of a Schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.stream.formats import (
    ArrowFormat,
    BadMessageError,
    Format,
    JsonFormat,
    TsvFormat,
)

__all__ = ["message_types", "schema_format"]

_NUMBERS: dict[str | None, pa.DataType] = {"float32": pa.float64(), "int64": pa.int64()}


def schema_format(name: str, schema: Schema, types: pa.Schema | None = None) -> Format:
    """Return a format that reads the columns of a schema, and refuses values that do not fit.

    Args:
        name: 'arrow', 'json' or 'tsv'.
        schema: the schema.
        types: names and Arrow types of the columns. Default: `message_types` for 'json' and 'tsv';
            for 'arrow', the types of the first message that fits the schema.

    Raises:
        ValueError: the schema does not decide the type of a column.
    """
    format: Format
    if name == "arrow":
        format = _SchemaArrowFormat(schema) if types is None else ArrowFormat(types)
    else:
        kind = TsvFormat if name == "tsv" else JsonFormat
        format = kind(message_types(schema, name) if types is None else types)

    def check(rows: pa.RecordBatch) -> None:
        _check(schema, rows)

    format.check = check
    return format


def message_types(schema: Schema, format: str) -> pa.Schema:
    """Return the columns (names and Arrow types) of messages that consist of lines of text.

    Args:
        schema: the schema.
        format: 'json' or 'tsv'. Lines of TSV also contain the columns that the schema ignores.

    Raises:
        ValueError: the schema does not decide the type of a column.

    Example:
        >>> from mindspore_rec.feature import LabelColumn, NumberColumn
        >>> message_types(Schema([NumberColumn("price"), LabelColumn("clicked")]), "json")
        price: double
        clicked: double
    """
    made = ("cross", "kept_history")  # of other columns
    read = set(schema.raw_columns)
    columns = [
        each
        for each in schema.columns
        if each.name in read or (format == "tsv" and each.kind not in made)
    ]
    return pa.schema([(each.name, _type(each, format)) for each in columns])


def _type(column: Column, format: str) -> pa.DataType:
    kind = column.kind
    if kind in ("text", "ignored") or column.decimal is not None or column.format is not None:
        return pa.string()
    is_list = kind in ("list", "history")
    if is_list and column.separator is not None:
        return pa.string()
    if is_list and format == "tsv":
        raise ValueError(
            f"column {column.name!r} must have a separator for messages of tsv, which have no lists"
        )
    if kind == "history" and column.values in _NUMBERS:
        return pa.list_(_NUMBERS[column.values])
    if kind in ("category", "group") or is_list:
        if column.values in (None, "key"):
            raise ValueError(
                f"column {column.name!r} must have values='text' or values='whole' for messages "
                f"of {format}, or fit the schema to rows before"
            )
        value = pa.int64() if column.values == "whole" else pa.string()
        return pa.list_(value) if is_list else value
    if kind == "label" and column.binary:
        return _label_type(column.positive)
    whole = kind == "integer" or (kind == "time" and column.unit not in (None, "s"))
    return pa.int64() if whole else pa.float64()


def _label_type(positive: Any) -> pa.DataType:
    """Return the type that labels must have in messages, so that no other value counts as 0."""
    if isinstance(positive, str):
        return pa.string()
    if isinstance(positive, bool):
        return pa.bool_()
    is_exact = positive is None or isinstance(positive, float) or abs(positive) < 1 << 53
    return pa.float64() if is_exact else pa.int64()


class _SchemaArrowFormat(ArrowFormat):
    """Format of Arrow messages; the first message that fits the schema decides the types."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._columns = schema

    def _first_schema(self, table: pa.Table) -> pa.Schema:
        """Given a message that fits the schema, return the types of the schema's columns."""
        first = super()._first_schema(table)
        names = self._columns.raw_columns
        rows = table.select([name for name in names if name in first.names])
        for batch in rows.combine_chunks().to_batches():
            _check(self._columns, batch)
        return pa.schema([self._typed(field) for field in rows.schema])

    def _typed(self, field: pa.Field) -> pa.Field:
        """Return a column's field, with the type from the schema if all lists are empty."""
        kind, column = field.type, self._columns.column(field.name)
        is_empty = pa.types.is_list(kind) and pa.types.is_null(kind.value_type)
        is_known = column.kind in ("list", "history") and column.values not in (None, "key")
        return pa.field(field.name, _type(column, "json") if is_empty and is_known else kind)


def _check(schema: Schema, rows: pa.RecordBatch) -> None:
    """Raise BadMessageError if a column is missing or has an illegal value."""
    try:
        faults = schema.faults(rows)
    except ValueError as error:
        raise BadMessageError("schema", str(error)) from error
    if faults:
        raise BadMessageError("value", faults[0].sentence())
