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
from mindspore_rec.common.columns.quantiles import MixedScale, QuantileBucket, QuantileScale
from mindspore_rec.common.columns.scaling import LogScale, MinMaxScale, StandardScale
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.transforms import Category, Feature, Number, TimePart

__all__ = ["Field", "Layout", "TableGroup", "numbers_of", "pipeline_of"]

_SCALES: dict[str, type[Number]] = {
    "quantile": QuantileScale,
    "mixed": MixedScale,
    "log": LogScale,
    "standard": StandardScale,
    "min_max": MinMaxScale,
    "none": Number,
}


_Settings = tuple[int, int | None, int | None]  # embedding_dim, admission, eviction
_Key = tuple[Column, str, Feature]  # with the name of the field


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


def numbers_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of the columns in the array `numbers`, in order."""
    return tuple(each.name for each in columns if each.kind in ("number", "integer"))


class Layout:
    """Fields of the array `ids`, their transforms, and their tables.

    Fields of one table are side by side, first the single keys and then the bags, so that a network
    looks up the single keys of a table at once. Apart from that, fields have the order of their
    columns.

    Columns without a name of a table share a table if they have the same settings. They share no
    rows, because their keys are salted with the columns' names.

    Args:
        columns: the columns.
        embedding_dim: number of floats of a row, for columns without own `embedding_dim`.

    Attributes:
        fields: the fields, in order.
        transforms: transform of each field.
        tables: the tables, in the order of their first columns.

    Raises:
        ValueError: columns name the same table and have different settings.
    """

    def __init__(self, columns: Sequence[Column], embedding_dim: int) -> None:
        groups: dict[tuple[str | None, _Settings], list[_Key]] = {}
        first: dict[str, tuple[Column, _Settings]] = {}
        for column in columns:
            keys = _keys_of(column)
            if not keys:
                continue
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
            groups.setdefault((column.table, settings), []).extend(
                (column, name, transform) for name, transform in keys
            )
        fields: list[Field] = []
        self.transforms: list[Feature] = []
        tables: list[TableGroup] = []
        start = 0
        for (table, settings), keys_of_table in groups.items():
            numbers = []
            for column, name, transform in sorted(keys_of_table, key=_is_bag):
                numbers.append(len(fields))
                fields.append(Field(name, column.name, start, column.most_values, _is_list(column)))
                self.transforms.append(transform)
                start += column.most_values
            tables.append(TableGroup(table, *settings, tuple(numbers)))
        self.fields = tuple(fields)
        self.tables = tuple(tables)


def _is_list(column: Column) -> bool:
    return column.kind in ("list", "text")


def _is_bag(key: _Key) -> bool:
    return _is_list(key[0])


def pipeline_of(columns: Sequence[Column], layout: Layout) -> FeaturePipeline:
    """Return the pipeline that makes the arrays of the columns.

    Raises:
        ValueError: no column has keys.
    """
    outputs: dict[str, Any] = {"ids": layout.transforms}
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
    scale = _SCALES[column.scale]
    if issubclass(scale, QuantileScale) and column.bucket_count:
        return _parsed(column, scale(column.name, column.bucket_count))
    return _parsed(column, scale(column.name))


def _parsed(column: Column, transform: Number) -> Feature:
    return transform if column.decimal is None else NumbersOfTexts(transform, column.decimal)


def _label(column: Column) -> Feature:
    if column.binary:
        return Label(column.name, column.positive)
    return _parsed(column, Number(column.name))
