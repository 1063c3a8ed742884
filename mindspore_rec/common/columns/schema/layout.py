# SPDX-License-Identifier: Apache-2.0
"""Layout of the arrays of a schema: which keys and numbers a network gets, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.columns.labels import Label, NumbersOfTexts, Times
from mindspore_rec.common.columns.lists import Categories, Words
from mindspore_rec.common.columns.quantiles import QuantileBucket, QuantileScale
from mindspore_rec.common.columns.scaling import LogScale, MinMaxScale, StandardScale
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.transforms import Category, Feature, Number, TimePart

__all__ = ["Field", "TableGroup", "fields_of", "numbers_of", "pipeline_of", "table_groups"]

_SCALES: dict[str, type[Number]] = {
    "quantile": QuantileScale,
    "log": LogScale,
    "standard": StandardScale,
    "min_max": MinMaxScale,
    "none": Number,
}


_Settings = tuple[int, int | None, int | None]  # embedding_dim, admission, eviction


@dataclass(frozen=True)
class Field:
    """Keys of one embedding vector in the array `ids`.

    Args:
        name: name of the field: the column's name, followed by '.bucket' or a part of the time.
        column: name of the column.
        start: index of the field's first key in a row of `ids`.
        length: number of keys. With more than 1 key, or if `is_bag`, a network takes the mean of
            the keys' rows, without the rows of `PADDING_KEY`.
        is_bag: True for the keys of a list or text.
    """

    name: str
    column: str
    start: int
    length: int = 1
    is_bag: bool = False

    @property
    def stop(self) -> int:
        """Index after the field's last key in a row of `ids`."""
        return self.start + self.length


@dataclass(frozen=True)
class TableGroup:
    """Fields whose rows are in one table.

    Args:
        name: name of the table; None for the table of all columns without own settings.
        embedding_dim: number of floats of a row.
        admission: number of occurrences at which a key gets a row, or None.
        eviction: number of seconds of event time without the key until its row is evicted, or None.
        fields: indexes of the fields.
    """

    name: str | None
    embedding_dim: int
    admission: int | None
    eviction: int | None
    fields: tuple[int, ...]


def fields_of(columns: Sequence[Column]) -> tuple[Field, ...]:
    """Return the fields of the array `ids`, in order."""
    fields: list[Field] = []
    start = 0
    for column in columns:
        is_bag = column.kind in ("list", "text")
        for name, _ in _keys_of(column):
            fields.append(Field(name, column.name, start, column.most_values, is_bag))
            start += column.most_values
    return tuple(fields)


def numbers_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of the columns in the array `numbers`, in order."""
    return tuple(each.name for each in columns if each.kind in ("number", "integer"))


def table_groups(
    columns: Sequence[Column], fields: Sequence[Field], embedding_dim: int
) -> tuple[TableGroup, ...]:
    """Return the tables of all fields, in the order of their first fields.

    Columns without a name of a table share a table if they have the same settings. They share no
    rows, because their keys are salted with the columns' names.

    Raises:
        ValueError: columns name the same table and have different settings.
    """
    by_name = {column.name: column for column in columns}
    groups: dict[tuple[str | None, _Settings], list[int]] = {}
    first: dict[str, tuple[Column, _Settings]] = {}
    for number, field in enumerate(fields):
        column = by_name[field.column]
        dim = embedding_dim if column.embedding_dim is None else column.embedding_dim
        settings = (dim, column.admission, column.eviction)
        if column.table is not None:
            other, known = first.setdefault(column.table, (column, settings))
            if settings != known:
                raise ValueError(
                    f"columns {other.name!r} and {column.name!r} are in table {column.table!r} "
                    "and must have the same embedding_dim, admission and eviction, got "
                    f"{known} and {settings}"
                )
        groups.setdefault((column.table, settings), []).append(number)
    return tuple(
        TableGroup(name, *settings, tuple(numbers)) for (name, settings), numbers in groups.items()
    )


def pipeline_of(columns: Sequence[Column]) -> FeaturePipeline:
    """Return the pipeline that makes the arrays of the columns.

    Raises:
        ValueError: no column has keys.
    """
    outputs: dict[str, Any] = {
        "ids": [transform for each in columns for _, transform in _keys_of(each)]
    }
    if not outputs["ids"]:
        raise ValueError(
            "columns must have at least one column whose values have rows: a category, integer, "
            "list or text, or a number with buckets"
        )
    numbers = [_number(each) for each in columns if each.kind in ("number", "integer")]
    if numbers:
        outputs["numbers"] = numbers
    for column in columns:
        if column.kind == "time":
            time = Times(column.name, column.unit, column.format)
            outputs["time"] = FeatureSpec("time", is_timestamp=True, transform=time)
    weights = [_parsed(each, Number(each.name)) for each in columns if each.kind == "weight"]
    if weights:
        outputs["weight"] = weights
    labels = [_label(each) for each in columns if each.kind == "label"]
    if labels:
        outputs["label"] = labels
    return FeaturePipeline(outputs)


def _keys_of(column: Column) -> list[tuple[str, Feature]]:
    """Return the names and transforms of a column's keys."""
    name = column.name
    if column.kind == "category":
        return [(name, Category(name, column.field, column.values))]
    if column.kind == "integer":
        return [(name, Category(name, column.field, "whole"))]
    if column.kind == "list":
        values, separator = column.values, column.separator
        return [(name, Categories(name, column.most_values, column.field, separator, values))]
    if column.kind == "text":
        return [(name, Words(name, column.most_values, column.field))]
    if column.kind == "time":
        return [
            (f"{name}.{part}", TimePart(name, part, column.unit, column.format))
            for part in column.parts
        ]
    if column.bucket_count:
        bucket = QuantileBucket(name, column.bucket_count)
        return [(f"{name}.bucket", _parsed(column, bucket))]
    return []


def _number(column: Column) -> Feature:
    if column.scale == "quantile" and column.bucket_count:
        return _parsed(column, QuantileScale(column.name, column.bucket_count))
    return _parsed(column, _SCALES[column.scale](column.name))


def _parsed(column: Column, transform: Number) -> Feature:
    return transform if column.decimal is None else NumbersOfTexts(transform, column.decimal)


def _label(column: Column) -> Feature:
    if column.binary:
        return Label(column.name, column.positive)
    return _parsed(column, Number(column.name))
