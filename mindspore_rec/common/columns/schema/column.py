# SPDX-License-Identifier: Apache-2.0
"""Kinds of columns of a data set, and the way a network reads each kind."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.columns.feature_spec import MAX_SECONDS, MAX_THRESHOLD
from mindspore_rec.common.columns.histories import ENDS, MOST_EVENTS, NUMBERS
from mindspore_rec.common.columns.target_statistics import STATISTICS
from mindspore_rec.common.columns.times import check_times
from mindspore_rec.common.columns.transforms import PARTS

__all__ = [
    "KINDS",
    "TRANSFORMS",
    "CategoryColumn",
    "Column",
    "CrossColumn",
    "GroupColumn",
    "HistoryColumn",
    "IgnoredColumn",
    "IntegerColumn",
    "KeptHistoryColumn",
    "LabelColumn",
    "ListColumn",
    "NumberColumn",
    "TextColumn",
    "TimeColumn",
    "WeightColumn",
]

TRANSFORMS = ("quantile", "mixed", "log", "standard", "min_max", "none")

_FEWEST_CROSSED, _MOST_CROSSED = 2, 4
_DEFAULT_LENGTH = 20
_DEFAULT_EVENTS = 50
_MOST_VALUES = 4096
_DEFAULT_BUCKETS = 256


class Column:
    """Base class of the columns of a `Schema`.

    Each kind of column is a subclass with the options of the kind. If a kind of column lacks an
    option, the option's attribute is None, False or (). Without the option `binary`, the attribute
    `binary` is True.

    Attributes:
        name: name of the column in the data, 1 to 255 characters.
        kind: word for the kind in YAML, such as 'category'.
        table: name of the table with the rows of the column's values. Columns with the same table
            share rows, and equal values have equal keys. `table` is None if the column shares no
            rows with other columns.
        embedding_dim: number of floats of a row, 1 to 8192; None for the schema's `embedding_dim`.
        admission: number of occurrences at which a value gets a row, at least 1; None for the first
            occurrence.
        eviction: a value's row is evicted if the value does not occur for this number of seconds of
            event time. None means that no row is evicted.
        dropout: probability, in (0, 1), that a training step treats the column's value as a value
            without a row; None means that no value is dropped.
        decimal: decimal point of numbers in a column of texts, '.' or ','; None if the column
            contains numbers. The other of both may separate thousands, as in '1,299.50'.
        statistics: 'folds' or 'past'. With either value, the network also gets two statistics as
            numbers: the mean label and the frequency of the column's value, see `TargetStatistics`.
            With 'folds', the statistics of a training row are computed from other rows. With
            'past', the statistics are computed from earlier rows, and the schema needs a column of
            times. None for no statistics.

    Raises:
        TypeError, ValueError: an option is of the wrong type or out of range. All kinds of columns
            raise these errors.
    """

    kind: ClassVar[str]

    name: str
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    dropout: float | None = None
    transform: str | None = None
    buckets: int | None = None
    values: str | None = None
    decimal: str | None = None
    length: int | None = None
    separator: str | None = None
    unit: str | None = None
    format: str | None = None
    parts: tuple[str, ...] = ()
    group: bool = False
    positive: Any = None
    binary: bool = True
    columns: tuple[str, ...] = ()
    statistics: str | None = None
    keep: str | None = None
    side_of: str | None = None
    of: tuple[str, ...] | str = ()
    by: str | None = None
    only: str | None = None
    salt: str | None = None
    kept: Column | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 255:
            raise ValueError(
                f"name of a column must be a text of 1 to 255 characters, got {self.name!r}"
            )
        where = f"column {self.name!r}: "
        self._check_rows(where)
        self._check_values(where)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({self.name!r}{options})"

    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        fields = dataclasses.fields(self)[1:]  # type: ignore[arg-type]
        values = {field.name: getattr(self, field.name) for field in fields}
        return {
            field.name: values[field.name]
            for field in fields
            if type(values[field.name]) is not type(field.default)
            or values[field.name] != field.default
        }

    @property
    def has_rows(self) -> bool:
        """True if values of the column have rows in a table."""
        if self.kind == "history":
            return self.values not in NUMBERS
        kinds = ("category", "integer", "list", "text", "cross")
        return self.kind in kinds or self.bucket_count > 0

    @property
    def is_read(self) -> bool:
        """True if the network reads the column."""
        kinds = ("number", "integer", "history", "kept_history")
        return self.has_rows or self.kind in kinds or bool(self.parts)

    @property
    def scale(self) -> str:
        """Name of the transform that scales the numbers, such as 'quantile'."""
        return self.transform or "quantile"

    @property
    def bucket_count(self) -> int:
        """Number of buckets of a column of numbers; 0 if the column has no buckets."""
        if self.kind != "number":
            return 0
        if self.buckets is None:
            return _DEFAULT_BUCKETS if self.scale in ("quantile", "mixed") else 0
        return self.buckets

    @property
    def most_values(self) -> int:
        """Greatest number of values that are read from the column in each row."""
        defaults = {
            "list": _DEFAULT_LENGTH,
            "text": _DEFAULT_LENGTH,
            "history": _DEFAULT_EVENTS,
            "kept_history": _DEFAULT_EVENTS,
        }
        return self.length or defaults.get(self.kind, 1)

    @property
    def field(self) -> str:
        """Text that salts the keys of the column's values."""
        if self.salt is not None:  # of the column whose values a history has
            return self.salt
        return self.name if self.table is None else self.table

    def _check_rows(self, where: str) -> None:
        if self.table is not None:
            _check_text(where + "table", self.table, 100)
        if self.embedding_dim is not None:
            check_int(where + "embedding_dim", self.embedding_dim, 1, 8192)
        if self.admission is not None:
            check_int(where + "admission", self.admission, 1, MAX_THRESHOLD)
        if self.eviction is not None:
            check_int(where + "eviction", self.eviction, 1, MAX_SECONDS)
        if self.dropout is not None:
            check_number(where + "dropout", self.dropout, low=0, low_open=True, high=1)
            if self.dropout >= 1:
                raise ValueError(f"{where}dropout must be in (0, 1), got {self.dropout}")
        if self.length is not None:
            most = MOST_EVENTS if self.kind == "history" else _MOST_VALUES
            check_int(where + "length", self.length, 1, most)

    def _check_values(self, where: str) -> None:
        if self.transform is not None:
            check_one_of(where + "transform", self.transform, TRANSFORMS)
        if self.values is not None:
            legal = ("text", "whole", "key")[: 3 if self.kind in ("category", "history") else 2]
            legal += NUMBERS if self.kind == "history" else ()
            check_one_of(where + "values", self.values, legal)
        if self.decimal is not None:
            check_one_of(where + "decimal", self.decimal, (".", ","))
        if self.separator is not None:
            _check_text(where + "separator", self.separator, 100)
        if self.statistics is not None:
            check_one_of(where + "statistics", self.statistics, STATISTICS)


def _check_text(argument: str, value: Any, most: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ValueError(f"{argument} must be a text of 1 to {most} characters, got {value!r:.80}")


def _check_bool(argument: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{argument} must be a bool, got {value!r}")


@dataclass(frozen=True, repr=False)
class CategoryColumn(Column):
    """Texts or whole numbers that are names, such as ids, with any number of different values.

    Args:
        name, table, embedding_dim, admission, eviction, statistics: see `Column`.
        values: 'text' or 'whole', the type of the values. With 'text', the whole number 7 becomes
            the text '7'. With 'whole', the text '7' becomes the whole number 7. Default: None,
            which means that `Schema.fit` chooses the type that the training rows have. Before
            `Schema.fit`, '7' and 7 are different categories. 'key' is for tables of earlier
            programs: the key of a whole number is the number itself, as in a `FeatureSpec` without
            a transform, and no number may be missing. 'key' does not change the keys of texts.
        group: True if the column's values are also the groups of the metric `gauc`. Default: False.
        dropout: see `Column`.

    Example:
        >>> CategoryColumn("user", admission=2)
        CategoryColumn('user', admission=2)
    """

    kind = "category"

    name: str
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    values: str | None = None
    group: bool = False
    statistics: str | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bool(f"column {self.name!r}: group", self.group)


@dataclass(frozen=True, repr=False)
class NumberColumn(Column):
    """A number that is a quantity, such as a price.

    Args:
        name: see `Column`.
        transform: how the number is scaled: 'quantile' by `QuantileScale`, 'mixed' by `MixedScale`,
            'log' by `LogScale`, 'standard' by `StandardScale`, 'min_max' by `MinMaxScale`, or
            'none'. Default: 'quantile'.
        buckets: number of intervals between quantiles, 2 to 65536, or 0 for no intervals. Each
            interval has a row in a table. Default: 256 if `transform` is 'quantile' or 'mixed',
            else 0.
        decimal: see `Column`.
        embedding_dim: see `Column`; legal only if the column has buckets.

    Raises:
        TypeError, ValueError: an option is of the wrong type or out of range, or `embedding_dim` is
            set although the column has no buckets.

    Example:
        >>> NumberColumn("views", "log").bucket_count, NumberColumn("price").bucket_count
        (0, 256)
    """

    kind = "number"

    name: str
    transform: str | None = None
    buckets: int | None = None
    decimal: str | None = None
    embedding_dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}: "
        if self.buckets is not None and self.buckets != 0:
            check_int(where + "buckets", self.buckets, 2, 1 << 16)
        if self.embedding_dim is not None and not self.bucket_count:
            raise ValueError(f"{where}embedding_dim is for buckets, and there are none")


@dataclass(frozen=True, repr=False)
class IntegerColumn(Column):
    """A whole number that is both a quantity and a category, for example a count or a year.

    The network gets the scaled number, and each value has a row in a table.

    Args:
        name, table, embedding_dim, admission, eviction, decimal, statistics: see `Column`.
        transform: see `NumberColumn`.
        dropout: see `Column`; the scaled number is never dropped.
    """

    kind = "integer"

    name: str
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    transform: str | None = None
    decimal: str | None = None
    statistics: str | None = None
    dropout: float | None = None


@dataclass(frozen=True, repr=False)
class CrossColumn(Column):
    """Category for each combination of values of several columns, such as the hour and the user.

    A cross is not a column of the data: the value of a row is made from the row's values in other
    columns of the schema. A network need not read the columns that a cross reads. An ignored column
    is read as texts.

    Args:
        name: name of the cross; no other column may have the same name.
        columns: names of 2 to 4 columns of kind category, integer, number with buckets, group or
            ignored, or parts of a time such as 'ts.hour'. If the order of the columns changes, the
            keys of the cross change.
        table, embedding_dim, admission, eviction, statistics, dropout: see `Column`.

    Raises:
        TypeError, ValueError: an option is of the wrong type or out of range, or `columns` are not
            2 to 4 different names.

    Example:
        >>> CrossColumn("user_hour", ["user", "ts.hour"], admission=5)
        CrossColumn('user_hour', columns=('user', 'ts.hour'), admission=5)
    """

    kind = "cross"

    name: str
    columns: tuple[str, ...] = ()
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    statistics: str | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}: columns must"
        if not isinstance(self.columns, (list, tuple)):
            raise TypeError(f"{where} be a list of names, got {self.columns!r}")
        object.__setattr__(self, "columns", tuple(self.columns))
        if not all(isinstance(each, str) for each in self.columns):
            raise TypeError(f"{where} be a list of names, got {list(self.columns)}")
        if not _FEWEST_CROSSED <= len(self.columns) <= _MOST_CROSSED:
            raise ValueError(
                f"{where} be {_FEWEST_CROSSED} to {_MOST_CROSSED} names, got {list(self.columns)}"
            )
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"{where} be different, got {list(self.columns)}")


@dataclass(frozen=True, repr=False)
class ListColumn(Column):
    """A list of categories in each row, such as tags.

    Args:
        name, table, embedding_dim, admission, eviction: see `Column`.
        values: see `CategoryColumn`.
        length: greatest number of values per row that are read, 1 to 4096. Default: 20.
        separator: text between the values in a column of texts, as in 'a|b|c'. Default: None, which
            means that the column has lists.
    """

    kind = "list"

    name: str
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    values: str | None = None
    length: int | None = None
    separator: str | None = None


@dataclass(frozen=True, repr=False)
class HistoryColumn(Column):
    """Past events of the row's user, oldest first: a list that a network reads as a sequence.

    A network gets the values of all lists and their offsets. Unlike with a `ListColumn`, the
    network does not get a mean of vectors. If several columns describe the same events, such as
    their items, categories and times, one column is the history, and the other columns are its side
    columns (`side_of`). The lists of a side column have the same lengths as the lists of the
    history. A missing list is empty.

    Args:
        name, table, embedding_dim, admission, eviction: see `Column`.
        values: type of the values. 'text', 'whole' and 'key' are for values with rows in a table,
            see `CategoryColumn`. 'float32' is for numbers; a missing number becomes 0. 'int64' is
            for whole numbers such as times; timestamps become whole seconds since 1970. Default:
            None, which means that `Schema.fit` sets 'text' or 'whole'.
        length: greatest number of events in a row's list, 1 to 65536. Side columns have the length
            of the history. Default: 50.
        keep: 'last' or 'first', to keep the last or the first events of a longer list. Side columns
            keep the same events as the history. Default: 'last'.
        side_of: name of the history that the column belongs to. Default: None, which means that the
            column is a history.
        separator: see `ListColumn`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, a side column sets `length` or
            `keep`, or a column of numbers has an option of a table.

    Example:
        >>> HistoryColumn("seen", table="items", length=100)
        HistoryColumn('seen', table='items', length=100)
        >>> HistoryColumn("seen_at", values="int64", side_of="seen")
        HistoryColumn('seen_at', values='int64', side_of='seen')
    """

    kind = "history"

    name: str
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    values: str | None = None
    length: int | None = None
    keep: str | None = None
    side_of: str | None = None
    separator: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}: "
        if self.keep is not None:
            check_one_of(where + "keep", self.keep, ENDS)
        if self.side_of is not None:
            _check_text(where + "side_of", self.side_of, 255)
            self._leave_out(where, ("length", "keep"), f"are of the history {self.side_of!r}")
        if self.values in NUMBERS:
            names = ("table", "embedding_dim", "admission", "eviction")
            self._leave_out(
                where, names, f"are of tables, and values={self.values!r} have no table"
            )

    def _leave_out(self, where: str, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{where}{name} must be left out: {' and '.join(names)} {reason}")


@dataclass(frozen=True, repr=False)
class KeptHistoryColumn(Column):
    """Last events of a row's user, which the library collects from rows; not a column of the data.

    A row's history contains the user's events before the time of the row, oldest first. The row
    itself becomes an event in the histories of later rows. A row's history contains no events with
    the time of the row. The schema needs a column of kind 'time'.

    A network sees the history as a `HistoryColumn`: the first column in `of` provides the values,
    and all further columns in `of` are side columns. A history `recent` of `item` and `ts` has the
    arrays 'recent.values', 'recent.ts.values' and 'recent.offsets'. An item has the same key and
    the same table row, whether it is in a history or in the row itself.

    Args:
        name: name of the history.
        of: name of the column, or names of the columns, from which an event takes its values. Each
            column is of kind 'category' or 'integer' (the values have rows in the column's table),
            'time' (in seconds since 1970) or 'number' (not scaled).
        by: name of the column with the user; the column's kind is 'category', 'integer', 'group' or
            'ignored'. A row without a user has no history, and is no event.
        length: greatest number of events of a history, at least 1. The events of a user take a row
            of ``1 + 6 * length * (1 + n)`` floats, at most 8,192, where n is the number of columns
            in `of`, not counting the time. If `of` names one column, `length` is at most 682.
            Default: 50.
        only: name of a label with two values; only rows with label 1 are events. Default: None,
            which means that all rows are events.
        eviction: a user without an event for this number of seconds of event time is evicted and
            has an empty history. Default: None, which means that no user is evicted.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> KeptHistoryColumn("recent", of=["item", "ts"], by="user", length=20)
        KeptHistoryColumn('recent', of=('item', 'ts'), by='user', length=20)
    """

    kind = "kept_history"

    name: str
    of: tuple[str, ...] | str = ()
    by: str | None = None
    length: int | None = None
    only: str | None = None
    eviction: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}: "
        of = (self.of,) if isinstance(self.of, str) else self.of
        if not isinstance(of, (list, tuple)) or not all(isinstance(each, str) for each in of):
            raise TypeError(f"{where}of must be a list of names, got {self.of!r}")
        object.__setattr__(self, "of", tuple(of))
        if not of or len(set(of)) < len(of):
            raise ValueError(f"{where}of must be different names, at least one, got {list(of)}")
        _check_text(where + "by", self.by, 255)
        if self.only is not None:
            _check_text(where + "only", self.only, 255)


@dataclass(frozen=True, repr=False)
class TextColumn(Column):
    """A text of several words, such as a title. Each word has a row in a table.

    Args:
        name, table, embedding_dim, admission, eviction: see `Column`.
        length: greatest number of words that are read per row, 1 to 4096. Default: 20.
    """

    kind = "text"

    name: str
    table: str | None = None
    embedding_dim: int | None = None
    admission: int | None = None
    eviction: int | None = None
    length: int | None = None


@dataclass(frozen=True, repr=False)
class TimeColumn(Column):
    """Time of the event, in UTC.

    Args:
        name: see `Column`.
        unit: unit of times that are numbers: 's', 'ms', 'us' or 'ns' since 1970. Default: 's'.
        format: format of times that are texts, in the notation of `strptime`, or 'iso' for ISO
            8601. Default: None, which means that times are numbers, timestamps, dates, or texts in
            ISO 8601.
        parts: parts of the time that are categories: 'minute', 'hour', 'weekday', 'day' and
            'month'. Default: none.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or unknown, or `unit` and `format`
            are both set.

    Example:
        >>> TimeColumn("ts", unit="ms", parts=["hour"])
        TimeColumn('ts', unit='ms', parts=('hour',))
    """

    kind = "time"

    name: str
    unit: str | None = None
    format: str | None = None
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}: "
        if self.format is not None:
            _check_text(where + "format", self.format, 100)
        check_times(self.unit, self.format, where)
        if not isinstance(self.parts, (list, tuple)):
            raise TypeError(f"{where}parts must be a list of texts, got {self.parts!r}")
        object.__setattr__(self, "parts", tuple(self.parts))
        for part in self.parts:
            check_one_of(where + "parts", part, PARTS)
        if len(set(self.parts)) < len(self.parts):
            raise ValueError(f"{where}parts must be different, got {list(self.parts)}")


@dataclass(frozen=True, repr=False)
class LabelColumn(Column):
    """The value to predict. A schema with several labels has one task per label.

    Args:
        name: see `Column`.
        positive: the value that counts as 1; every other value counts as 0. For a column of bools,
            `positive` is True or False, or a text such as 'true'. If `positive` is True or False,
            the labels must be bools, numbers 0 and 1, or texts such as 'true' and '0'. Texts may
            equal `positive` as texts or as numbers: '4.0' equals 4, and 'True' equals 1. Default:
            None, which means that the label is 0 or 1, or False or True.
        binary: True if the label has two values; False if the label is a number. Default: True.
        decimal: see `Column`; legal only if `binary` is False.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, or two arguments contradict each
            other.
    """

    kind = "label"

    name: str
    positive: Any = None
    binary: bool = True
    decimal: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"column {self.name!r}: "
        _check_bool(where + "binary", self.binary)
        if isinstance(self.positive, np.generic):
            object.__setattr__(self, "positive", self.positive.item())
        if self.positive is not None:
            if not isinstance(self.positive, (str, int, float)):
                raise TypeError(f"{where}positive must be a text or number, got {self.positive!r}")
            if not self.binary:
                raise ValueError(f"{where}positive is for labels with two values: leave it out")
        if self.decimal is not None and self.binary:
            raise ValueError(f"{where}decimal is for labels that are numbers: binary must be False")


@dataclass(frozen=True, repr=False)
class WeightColumn(Column):
    """Weight, at least 0, of each row in the loss and the metrics of `RecModel`.

    Args:
        name, decimal: see `Column`.
    """

    kind = "weight"

    name: str
    decimal: str | None = None


@dataclass(frozen=True, repr=False)
class GroupColumn(Column):
    """Group of each row, such as the user, for the metric `gauc`; not a feature.

    `mindspore-rec eval` also shows the metrics of the 20 groups with the most rows.

    Args:
        name: see `Column`.
        values: see `CategoryColumn`.
    """

    kind = "group"

    name: str
    values: str | None = None


@dataclass(frozen=True, repr=False)
class IgnoredColumn(Column):
    """A column that is only read for a cross, or for the option `by` of a `KeptHistoryColumn`.

    Args:
        name: see `Column`.
    """

    kind = "ignored"

    name: str


KINDS: dict[str, type[Column]] = {each.kind: each for each in Column.__subclasses__()}
"""The class of each kind of column."""
