# SPDX-License-Identifier: Apache-2.0
"""Layout of a schema's arrays: the keys and numbers that a network gets, and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mindspore_rec.common.columns.cross import Cross
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.columns.histories import History, HistoryValues, offsets_name
from mindspore_rec.common.columns.kept_events import KeptEvents, events_name
from mindspore_rec.common.columns.labels import Label, NumbersOfTexts, RequiredNumber, Times
from mindspore_rec.common.columns.lists import Categories, Words
from mindspore_rec.common.columns.quantiles import MixedScale, QuantileBucket, QuantileScale
from mindspore_rec.common.columns.scaling import LogScale, MinMaxScale, StandardScale
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.target_statistics import STATISTICS, TargetStatistics
from mindspore_rec.common.columns.transforms import PARTS, Category, Feature, Number, TimePart

__all__ = [
    "Field",
    "Layout",
    "TableGroup",
    "crossed_by",
    "histories_of",
    "numbers_of",
    "pipeline_of",
]

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
    """A field: the keys in the array `ids` from which a network makes one embedding vector per row.

    Args:
        name: name of the column, with the ending '.bucket' for the buckets of a number, or with an
            ending such as '.hour' for a part of a time.
        column: name of the column.
        start: index of the field's first key in a row of `ids`.
        length: number of keys per row. If `length` is above 1 or `is_bag` is True, a network takes
            the mean of the keys' rows, and ignores `PADDING_KEY`.
        is_bag: True for the keys of a list or text.
        dropout: probability that a training step reads `PADDING_KEY` in place of a key.
    """

    name: str
    column: str
    start: int
    length: int = 1
    is_bag: bool = False
    dropout: float = 0.0

    @property
    def stop(self) -> int:
        """Index after the field's last key in a row of `ids`."""
        return self.start + self.length


@dataclass(frozen=True)
class TableGroup:
    """The fields and histories that share one table.

    Args:
        name: name of the table; None if the columns do not set `table`.
        embedding_dim: number of floats of a row.
        admission: number of occurrences at which a key gets a row; None for the first occurrence.
        eviction: a key's row is evicted if the key does not occur for this number of seconds of
            event time; None if no row is evicted.
        fields: indexes of the fields whose keys have rows in the table.
        histories: names of the history columns whose keys have rows in the table.
    """

    name: str | None
    embedding_dim: int
    admission: int | None
    eviction: int | None
    fields: tuple[int, ...]
    histories: tuple[str, ...] = ()


def numbers_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of the numbers in a row of the array `numbers`, in order."""
    numbers = [each.name for each in columns if each.kind in ("number", "integer")]
    labels = [each.name for each in columns if each.kind == "label"]
    ends = ["mean"] if len(labels) == 1 else [f"mean.{label}" for label in labels]
    for by in STATISTICS:
        for column in columns:
            if column.statistics == by:
                numbers += [f"{column.name}.{end}" for end in (*ends, "count")]
    return tuple(numbers)


def histories_of(columns: Sequence[Column]) -> tuple[tuple[Column, ...], ...]:
    """Return a tuple of columns for each history: the history's own column, then its side columns.

    Raises:
        ValueError: the history of a side column is missing, or is a side column itself.
    """
    of_kind = [each for each in columns if each.kind == "history"]
    histories = {each.name: [each] for each in of_kind if each.side_of is None}
    for column in of_kind:
        if column.side_of is None:
            continue
        if column.side_of not in histories:
            raise ValueError(
                f"column {column.name!r}: side_of must be a column of kind 'history' that is no "
                f"side column, got {column.side_of!r}; there are {list(histories)}"
            )
        histories[column.side_of].append(column)
    return tuple(map(tuple, histories.values()))


class Layout:
    """Fields of the array `ids`, their transforms, and their tables.

    Fields that use the same table are adjacent, first the fields with one key and then the bags.
    This order lets a network look up all single keys of a table in one call. Fields of the same
    table and the same kind (one key or bag) are in the order of their columns.

    Columns that name no table share a table if they have the same settings. In a shared table,
    different columns have separate rows, because keys are salted with the columns' names.

    Args:
        columns: the columns.
        embedding_dim: number of floats of a row, for columns that do not set `embedding_dim`.

    Attributes:
        fields: the fields, in the order of their keys in `ids`.
        transforms: the transform that computes each field's keys.
        tables: the tables, in the order of the tables' first columns.

    Raises:
        ValueError: columns of the same table have different settings of the table.
    """

    def __init__(self, columns: Sequence[Column], embedding_dim: int) -> None:
        groups: dict[tuple[str | None, _Settings], list[_Key]] = {}
        histories: dict[tuple[str | None, _Settings], list[str]] = {}
        first: dict[str, tuple[Column, _Settings]] = {}
        for column in columns:
            keys = _keys_of(column, columns)
            is_history = column.kind == "history" and column.has_rows
            if not keys and not is_history:
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
            histories.setdefault((column.table, settings), []).extend([column.name] * is_history)
        fields: list[Field] = []
        self.transforms: list[Feature] = []
        tables: list[TableGroup] = []
        start = 0
        for (table, settings), keys_of_table in groups.items():
            numbers = []
            for column, name, transform in sorted(keys_of_table, key=_is_bag):
                numbers.append(len(fields))
                shape = (start, column.most_values, _is_list(column))
                fields.append(Field(name, column.name, *shape, column.dropout or 0.0))
                self.transforms.append(transform)
                start += column.most_values
            of_histories = tuple(histories[table, settings])
            tables.append(TableGroup(table, *settings, tuple(numbers), of_histories))
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
    numbers += [_statistics(by, columns) for by in STATISTICS if _with_statistics(by, columns)]
    if numbers:
        outputs["numbers"] = numbers
    for history in histories_of(columns):
        members = [_values_of(each) for each in history]
        made = History(members, history[0].most_values, history[0].keep or "last")
        if history[0].kept is None:
            outputs[offsets_name(history[0].name)] = made
        else:
            name = events_name(history[0].name)
            outputs[name] = [_kept_events(history[0].kept, made, columns)]
    for column in columns:
        if column.kind == "time":
            outputs["time"] = FeatureSpec("time", is_timestamp=True, transform=_times(column))
    weights = [_weight(each) for each in columns if each.kind == "weight"]
    if weights:
        outputs["weight"] = weights
    labels = [_label(each) for each in columns if each.kind == "label"]
    if labels:
        outputs["label"] = labels
    return FeaturePipeline(outputs)


def crossed_by(column: Column, columns: Sequence[Column]) -> list[tuple[Column, str | None]]:
    """Return a pair (column, part of the time or None) for each column that a cross reads.

    Args:
        column: any column. For a column that is not a cross, the result is empty.
        columns: all columns.

    Raises:
        ValueError: a column of the cross is missing or cannot be crossed.
    """
    by_name = {each.name: each for each in columns}
    others: list[tuple[Column, str | None]] = []
    for name in column.columns:
        where = f"column {column.name!r}: columns must"
        whole, _, part = name.rpartition(".")
        if name in by_name:
            others.append((by_name[name], None))
        elif whole in by_name and by_name[whole].kind == "time" and part in PARTS:
            others.append((by_name[whole], part))
        else:
            raise ValueError(f"{where} be columns of the schema or parts of its time, got {name!r}")
        other, time_part = others[-1]
        kinds = ("category", "integer", "group", "ignored")
        is_part = other.kind == "time" and time_part is not None
        if other.kind not in kinds and not other.bucket_count and not is_part:
            hint = ": name a part, such as its hour" if other.kind == "time" else ""
            hint = ": it needs buckets" if other.kind == "number" else hint
            raise ValueError(f"{where} have one key per row, {name!r} is a {other.kind}{hint}")
    return others


def _cross(column: Column, columns: Sequence[Column]) -> Cross:
    parts: list[Feature] = []
    for other, part in crossed_by(column, columns):
        if part is not None:
            parts.append(TimePart(other.name, part, other.unit, other.format))
        elif other.kind in ("group", "ignored"):
            parts.append(_unread(other))
        else:
            parts.append(_keys_of(other, columns)[0][1])
    return Cross(parts, column.field)


def _unread(column: Column) -> Category:
    """Return the transform of a column that a cross reads, but the network does not read."""
    return Category(column.name, values="text" if column.kind == "ignored" else column.values)


def _keys_of(column: Column, columns: Sequence[Column]) -> list[tuple[str, Feature]]:
    """Return the names and transforms of a column's keys."""
    name = column.name
    if column.kind == "cross":
        return [(name, _cross(column, columns))]
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


def _values_of(column: Column) -> HistoryValues:
    return HistoryValues(column.name, column.values, column.field, column.separator)


def _kept_events(column: Column, history: History, columns: Sequence[Column]) -> KeptEvents:
    """Return the transform that makes the events of a `KeptHistoryColumn` from rows."""
    by_name = {each.name: each for each in columns}
    user = by_name[column.by or ""]
    values: list[Feature | None] = []
    for name in column.of:
        other = by_name[name]
        if other.kind == "time":
            values.append(None)
        elif other.kind == "number":
            values.append(_parsed(other, Number(other.name)))
        else:
            values.append(_keys_of(other, columns)[0][1])
    return KeptEvents(
        _unread(user) if user.kind in ("group", "ignored") else _keys_of(user, columns)[0][1],
        _times(next(each for each in columns if each.kind == "time")),
        values,
        history,
        None if column.only is None else _label(by_name[column.only]),
        column.eviction or 0,
    )


def _number(column: Column) -> Feature:
    scale = _SCALES[column.scale]
    if issubclass(scale, QuantileScale) and column.bucket_count:
        return _parsed(column, scale(column.name, column.bucket_count))
    return _parsed(column, scale(column.name))


def _parsed(column: Column, transform: Number) -> Feature:
    return transform if column.decimal is None else NumbersOfTexts(transform, column.decimal)


def _with_statistics(by: str, columns: Sequence[Column]) -> list[Column]:
    return [each for each in columns if each.statistics == by]


def _statistics(by: str, columns: Sequence[Column]) -> TargetStatistics:
    """Return one transform for all columns with the option ``statistics=by``.

    Raises:
        ValueError: there is no label; `by` is 'past' and there is no column of times; or `by` is
            'folds' and no other column can choose a row's fold.
    """
    of = _with_statistics(by, columns)
    labels = [_label(each) for each in columns if each.kind == "label"]
    if not labels:
        raise ValueError(f"column {of[0].name!r} has statistics of a label, and there is no label")
    times = [each for each in columns if each.kind == "time"]
    if by == "past" and not times:
        raise ValueError(
            f"column {of[0].name!r} has statistics of the past: one column must be of kind 'time'"
        )
    others = [] if by == "past" else _single_values(columns)
    weights = [_weight(each) for each in columns if each.kind == "weight"]
    return TargetStatistics(
        [_keys_of(each, columns)[0][1] for each in of],
        labels,
        [*others, *map(_times, times)],
        by,
        weights[0] if weights else None,
    )


def _single_values(columns: Sequence[Column]) -> list[Feature]:
    """Return a transform for each column that the network reads and that has one value per row."""
    crossed = {other.name for each in columns for other, _ in crossed_by(each, columns)}
    made: list[Feature] = []
    for column in columns:
        if column.kind in ("category", "integer"):
            made.append(_keys_of(column, columns)[0][1])
        elif column.kind == "number":
            made.append(_parsed(column, Number(column.name)))
        elif column.name in crossed and column.kind in ("group", "ignored"):
            made.append(_unread(column))
    return made


def _times(column: Column) -> Times:
    return Times(column.name, column.unit, column.format)


def _weight(column: Column) -> Feature:
    return _parsed(column, RequiredNumber(column.name, least=0))


def _label(column: Column) -> Feature:
    if column.binary:
        return Label(column.name, column.positive)
    return _parsed(column, RequiredNumber(column.name))
