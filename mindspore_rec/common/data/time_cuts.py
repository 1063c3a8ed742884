# SPDX-License-Identifier: Apache-2.0
"""Find the times at which rows are split into shares, in one pass and with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import is_text

__all__ = ["TimeCounts", "time_expression", "time_filters"]

_MOST_COUNTS = 1 << 20
_ZONE = r":.*([Zz]|[+-]\d\d(:?\d\d)?)$"


class TimeCounts:
    """Count rows by time; neighbouring times are merged if there are more than `most` times.

    Args:
        most: maximum number of counts in memory.
    """

    def __init__(self, most: int = _MOST_COUNTS) -> None:
        self._most = most
        self._shift = 0
        self._times = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)

    def add(self, times: np.ndarray) -> None:
        """Count times, int64 ``[N]``."""
        distinct, counts = np.unique(times >> self._shift, return_counts=True)
        self._merge(np.concatenate([self._times, distinct]), np.concatenate([self._counts, counts]))
        while len(self._times) > self._most:
            self._shift += 1
            self._merge(self._times >> 1, self._counts)

    def cuts(self, shares: Sequence[float]) -> list[int]:
        """Return a time for each cumulative share: about this share of the rows is before the time.

        Rows with equal times stay together.
        """
        ends = np.cumsum(self._counts)
        cuts = []
        for share in shares:
            wanted = share * (ends[-1] if len(ends) else 0)
            after = int(np.argmin(np.abs(ends - wanted)))
            cuts.append(int((self._times[after] + 1) << self._shift))
        return cuts

    def _merge(self, times: np.ndarray, counts: np.ndarray) -> None:
        self._times, where = np.unique(times, return_inverse=True)
        self._counts = np.bincount(where, counts, len(self._times)).astype(np.int64)


def time_expression(name: str, kind: pa.DataType, format: str | None) -> pc.Expression:
    """Return an expression for a column's times; the expression converts texts to timestamps."""
    field = pc.field(name)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not is_text(plain):
        return field
    if pa.types.is_dictionary(kind):
        field = field.cast(plain)
    return _parsed(field, format)


def _iso_times(texts: Any) -> Any:
    """Convert an array or expression of texts in ISO 8601, with or without a time zone, to UTC."""
    texts = texts.cast(pa.string())
    is_day = pc.less_equal(pc.utf8_length(texts), pa.scalar(10))
    utc = pc.if_else(is_day, pa.scalar(" 00:00Z"), pa.scalar("Z"))
    zone = pc.if_else(pc.match_substring_regex(texts, _ZONE), pa.scalar(""), utc)
    text = pc.binary_join_element_wise(texts, zone, pa.scalar(""))
    return text.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def as_numbers(times: pa.Array) -> np.ndarray:
    """Convert times to int64, in the given order; missing times are dropped."""
    kind = times.type
    known = times.drop_null()
    if pa.types.is_floating(kind):
        values = known.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.floor(values[~np.isnan(values)]).astype(np.int64)
    if pa.types.is_date32(kind):
        known = known.cast(pa.int32())
    return known.cast(pa.int64()).to_numpy(zero_copy_only=False)


def as_scalar(number: int, kind: pa.DataType) -> pa.Scalar:
    """Convert a number from `as_numbers` back to the column's type."""
    if pa.types.is_floating(kind):
        return pa.scalar(float(number), kind)
    if pa.types.is_temporal(kind):
        return pa.scalar(number, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    return pa.scalar(number, kind)


def time_filters(
    times: Iterable[pa.Array], expression: pc.Expression, shares: Sequence[float], name: str
) -> list[pc.Expression]:
    """Return one filter for each share of the rows; the first share has the oldest rows.

    Args:
        times: the times of all rows, in arrays.
        expression: Arrow expression that computes a row's time.
        shares: share of the rows in each part. The shares must add up to 1.
        name: name of the column.

    Raises:
        ValueError: there are no times, or too few distinct times for the shares.
    """
    counts, kind = TimeCounts(), None
    for column in times:
        kind = column.type
        if not (
            pa.types.is_temporal(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        ):
            raise ValueError(f"column {name!r} must have times, got the type {kind}")
        counts.add(as_numbers(column))
    if kind is None or not len(counts._times):
        raise ValueError(f"column {name!r} has no times, by which the rows could be split")
    numbers = counts.cuts(np.cumsum(shares)[:-1].tolist())
    last = int((counts._times[-1] + 1) << counts._shift)
    if any(high <= low for low, high in zip(numbers, [*numbers[1:], last], strict=True)):
        raise ValueError(
            f"column {name!r} has too few distinct times ({len(counts._times)}) for the shares "
            f"{[round(float(each), 6) for each in shares]}: rows of one time stay together; split "
            "by rows with split() instead"
        )
    ends = [as_scalar(each, kind) for each in numbers]
    # A row without a time is in the first part.
    made = [(expression < ends[0]) | expression.is_null(nan_is_null=True)] if ends else []
    made += [
        (expression >= low) & (expression < high) for low, high in zip(ends, ends[1:], strict=False)
    ]
    return [*made, expression >= ends[-1]] if ends else [pc.scalar(True)]


def times_of(values: pa.Array, name: str, format: str | None) -> pa.Array:
    """Convert a time column of texts to timestamps; return a column of another type unchanged.

    Raises:
        ValueError: a text is not a time.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not is_text(values.type):
        return values
    try:
        return _parsed(values, format)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"column {name!r} has a text that is no time, {_first_bad(values, format)!r}: name the "
            "format in the schema, as in format='%d.%m.%Y', or call split() instead"
        ) from error


def _parsed(texts: Any, format: str | None) -> Any:
    """Convert an array or expression of texts to timestamps."""
    if format not in (None, "iso"):
        return pc.strptime(texts, format=format, unit="us")
    return _iso_times(texts)


def _first_bad(texts: pa.Array, format: str | None) -> str | None:
    """Return the first text that cannot be parsed."""
    for text in texts.drop_null().unique():
        try:
            _parsed(pa.array([text.as_py()]), format)
        except pa.ArrowInvalid:
            return str(text.as_py())
    return None
