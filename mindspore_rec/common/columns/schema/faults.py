# SPDX-License-Identifier: Apache-2.0
"""Faults of rows: values that are illegal in a schema's columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import (
    decoded,
    is_list,
    is_text,
    nulls_of_nan,
    values_array,
)
from mindspore_rec.common.columns.categories import whole_numbers
from mindspore_rec.common.columns.columns import MAX_EVENT_TIME
from mindspore_rec.common.columns.histories import NUMBERS, HistoryValues, whole_values
from mindspore_rec.common.columns.labels import numbers_and_legal, numbers_of_texts, positive_rows
from mindspore_rec.common.columns.missing_texts import are_missing_texts
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.times import seconds_of
from mindspore_rec.common.columns.transforms import GREATEST

__all__ = ["Fault", "faults_of", "missing_column"]


@dataclass(frozen=True)
class Fault:
    """Illegal values of a column in a batch: the first illegal value, and the rows.

    Args:
        column: name of the column.
        rows: indexes of the rows in the batch, int64, at least one.
        value: the value in the first row of `rows`.
        expected: what the value must be, in words.
    """

    column: str
    rows: np.ndarray
    value: Any
    expected: str

    def sentence(self, row: int | None = None) -> str:
        """Return the part of an error message that names the value and says what is legal.

        Args:
            row: number of the first row with a fault, counted over all data. Default: the row's
                index in the batch.
        """
        number = int(self.rows[0]) if row is None else row
        return (
            f"column {self.column!r} must be {self.expected}, row {number} is {_shown(self.value)}"
        )


def missing_column(name: str, names: Sequence[str]) -> ValueError:
    """Return the error for a missing column, with the most similar name in the data."""
    near = difflib.get_close_matches(name, names, 1, 0.6)
    hint = f"; {near[0]!r} is similar" if near else ""
    shown = ", ".join(map(repr, list(names)[:20])) + (", ..." if len(names) > 20 else "")
    return ValueError(f"data must have a column {name!r}, they have {shown}{hint}")


def faults_of(columns: Sequence[Column], rows: pa.RecordBatch) -> list[Fault]:
    """Return the faults of a batch, at most one per column.

    Args:
        columns: the columns that are read.
        rows: the batch, which must have all columns.

    Raises:
        ValueError: a column is missing, or has a type from which no value can be read.
    """
    names = rows.schema.names
    faults = []
    by_name = {column.name: column for column in columns}
    for column in columns:
        if column.name not in names:
            raise missing_column(column.name, names)
        values = values_array(f"column {column.name!r} must", rows.column(column.name))
        checks = _checks(column, values)
        history = by_name.get(column.side_of or "")
        if history is not None and history.name in names:
            first = values_array(f"column {history.name!r} must", rows.column(history.name))
            checks = chain(checks, _as_long_as(history, first, column, values))
        for legal, expected in checks:
            wrong = np.flatnonzero(~legal)
            if len(wrong):
                faults.append(Fault(column.name, wrong, values[int(wrong[0])].as_py(), expected))
                break
    return faults


Check = tuple[np.ndarray, str]
"""Which values are legal, bool ``[B]``, and what they must be."""


def _checks(column: Column, values: pa.Array) -> Iterator[Check]:
    values = decoded(values)
    if column.kind in ("category", "group"):
        yield from _category(column, values)
    elif column.kind in ("number", "integer"):
        yield from _number(column, values)
    elif column.kind in ("list", "text"):
        _check_nested(column, nulls_of_nan(values).type)
    elif column.kind == "history":
        yield from _history(column, values)
    elif column.kind == "time":
        yield from _time(column, values)
    elif column.kind == "label":
        yield from _label(column, values)
    elif column.kind == "weight":
        yield from _weight(column, values)


def _category(column: Column, values: pa.Array) -> Iterator[Check]:
    kind = values.type
    expected = "whole numbers without missing values (values: key)"
    if column.values == "key" and pa.types.is_integer(kind):
        yield _array(values.is_valid()), expected
        return
    if column.values == "key" and pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False)
        yield _are_whole(values) & ~np.isnan(numbers), expected
        return
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return
    if pa.types.is_boolean(kind) and column.values is not None:
        return
    if is_text(kind):
        if column.values == "whole":
            is_missing = pc.or_kleene(values.is_null(), pc.match_substring_regex(values, r"^\s*$"))
            legal = pc.or_kleene(is_missing, whole_numbers(values).is_valid())
            yield _array(legal), "whole numbers (values: whole)"
        return
    if pa.types.is_floating(kind):
        if column.values != "text":
            yield _are_whole(values), "texts or whole numbers"
        return
    raise ValueError(
        f"column {column.name!r} must be texts or whole numbers for kind {column.kind!r}, it is "
        f"{kind}: {_remedy(kind)}"
    )


_NUMBERS = {".": "numbers", ",": "numbers with a decimal comma"}


def _number(column: Column, values: pa.Array) -> Iterator[Check]:
    kind = values.type
    if is_text(kind) and column.decimal is not None:
        numbers, legal = numbers_and_legal(values, column.decimal)
        yield _array(legal), _NUMBERS[column.decimal]
        if column.kind == "integer":
            # The column's keys are made of the texts.
            missing = pc.or_(values.is_null(), are_missing_texts(values))
            whole = pc.or_(missing, whole_numbers(values).is_valid())
            yield _array(whole), "whole numbers of digits only (kind: number reads other numbers)"
        values = numbers
    elif is_text(kind):
        first = values.drop_null()
        shown = f" such as {_shown(first[0].as_py())}" if len(first) else ""
        raise ValueError(
            f"column {column.name!r} must be numbers for kind {column.kind!r}, it is texts{shown}: "
            "if the texts are numbers, name their decimal point (decimal: '.'), else the column "
            "is a category"
        )
    elif not _is_number(kind):
        raise ValueError(
            f"column {column.name!r} must be numbers for kind {column.kind!r}, it is {kind}: "
            f"{_remedy(kind)}"
        )
    if column.kind == "integer" and pa.types.is_floating(values.type):
        yield _are_whole(values), "whole numbers"


def _check_nested(column: Column, kind: pa.DataType) -> None:
    if pa.types.is_null(kind):
        return
    if column.kind == "text" and not is_text(kind):
        raise ValueError(f"column {column.name!r} must be texts for kind 'text', it is {kind}")
    if column.kind in ("list", "history") and column.separator is None and not is_list(kind):
        raise ValueError(
            f"column {column.name!r} must be lists for kind {column.kind!r}, it is {kind}: if the "
            "values are in a text such as 'a|b', name what is between them (separator: '|')"
        )


def _history(column: Column, values: pa.Array) -> Iterator[Check]:
    _check_nested(column, nulls_of_nan(values).type)
    offsets, flat = _lists(column, values)
    for legal, expected in _events(column, decoded(flat)):
        legal_rows = np.ones(len(offsets) - 1, bool)
        rows = np.repeat(np.arange(len(legal_rows)), np.diff(offsets))
        legal_rows[rows[~legal]] = False
        yield legal_rows, f"lists of {expected}"


def _events(column: Column, flat: pa.Array) -> Iterator[Check]:
    """Yield pairs: a bool array, True for each legal value, and a text that says what is legal."""
    if column.values not in NUMBERS:
        yield from _category(column, flat)
    elif column.values == "int64":
        yield _array(whole_values(column.name, flat).is_valid()), "whole numbers or times"
    elif is_text(flat.type):
        yield _array(numbers_and_legal(flat, ".")[1]), "numbers"
    elif not _is_number(flat.type):
        raise ValueError(f"column {column.name!r} must be lists of numbers, it has {flat.type}")


def _as_long_as(
    history: Column, first: pa.Array, column: Column, values: pa.Array
) -> Iterator[Check]:
    """Yield bools, True for rows in which a side column's list is as long as the history's list."""
    counts = np.diff(_lists(history, first)[0])
    legal = np.diff(_lists(column, values)[0]) == counts
    wanted = "" if legal.all() else f", {counts[np.flatnonzero(~legal)[0]]} values"
    yield legal, f"a list as long as the list of column {history.name!r}{wanted}"


def _lists(column: Column, values: pa.Array) -> tuple[np.ndarray, pa.Array]:
    return HistoryValues(column.name, column.values, separator=column.separator).lists(values)


def _time(column: Column, values: pa.Array) -> Iterator[Check]:
    seconds = seconds_of(column.name, values, column.unit, column.format)
    numbers = seconds.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    expected = "a time" if column.format is None else f"a time of the format {column.format!r}"
    yield ~np.isnan(numbers), expected
    hint = ""
    if column.unit is None and len(numbers) and np.nanmedian(numbers) > MAX_EVENT_TIME:
        factors = {"ms": 1e3, "us": 1e6, "ns": 1e9}
        fits = [u for u, f in factors.items() if np.nanmedian(numbers) / f <= MAX_EVENT_TIME]
        hint = f", or name the unit (unit: {fits[0]})" if fits else ""
    yield (numbers >= 0) & (numbers <= MAX_EVENT_TIME), f"between the years 1970 and 2106{hint}"


def _label(column: Column, values: pa.Array) -> Iterator[Check]:
    yield _array(values.is_valid()), "a label in each row"
    if column.binary:
        legal = positive_rows(column.name, values, column.positive).is_valid()
        yield (
            _array(legal),
            "0 or 1 (positive: names the value that counts as 1; binary: false predicts numbers)",
        )
        return
    yield from _finite(column, values)


def _weight(column: Column, values: pa.Array) -> Iterator[Check]:
    yield from _finite(column, values)
    numbers = numbers_of_texts(values, column.decimal or ".").cast(pa.float64(), safe=False)
    yield _array(pc.fill_null(pc.greater_equal(numbers, 0), False)), "a weight of at least 0"


def _finite(column: Column, values: pa.Array) -> Iterator[Check]:
    if is_text(values.type) and column.decimal is not None:
        values = numbers_of_texts(values, column.decimal)
    if not _is_number(values.type):
        raise ValueError(
            f"column {column.name!r} must be numbers for kind {column.kind!r}, it is {values.type}"
        )
    numbers = values.cast(pa.float64(), safe=False)
    yield _array(pc.fill_null(pc.is_finite(numbers), False)), "a finite number"
    yield (
        _array(pc.less_equal(pc.abs(numbers), GREATEST)),
        "at most 3.4e38 (float32)",
    )


def _are_whole(values: pa.Array) -> np.ndarray:
    numbers = values.to_numpy(zero_copy_only=False)
    most = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)
    with np.errstate(invalid="ignore"):
        return np.isnan(numbers) | ((np.abs(numbers) <= most) & (np.trunc(numbers) == numbers))


def _array(legal: pa.Array) -> np.ndarray:
    return np.asarray(legal.to_numpy(zero_copy_only=False), bool)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_null(kind)
    )


def _remedy(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "name the type of its keys, for 0 and 1 (values: whole)"
    if pa.types.is_temporal(kind):
        return "a column of kind 'time' reads times"
    if pa.types.is_decimal(kind):
        return "convert it to floats, .astype(float)"
    if pa.types.is_nested(kind):
        return "a column of kind 'list' reads lists"
    return "convert it to texts, .astype(str)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
