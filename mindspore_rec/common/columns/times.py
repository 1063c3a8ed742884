# SPDX-License-Identifier: Apache-2.0
"""Times in columns: numbers of several units, texts of several formats, timestamps and dates."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.arrow_columns import decoded, is_text

__all__ = ["UNITS", "check_times", "seconds_of"]

UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_ISO = "iso"


def check_times(unit: str | None, format: str | None, where: str = "") -> None:
    """Check unit and format of times.

    Args:
        unit: unit of times that are numbers, or None.
        format: format of times that are texts, or None.
        where: text that precedes the arguments' names in error messages. Default: none.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or unknown, or both unit and format
            are set.
    """
    if unit is not None:
        check_one_of(where + "unit", unit, tuple(UNITS))
    if format is not None:
        if not isinstance(format, str) or not format:
            raise TypeError(f"{where}format must be a text, got {format!r}")
        if unit is not None:
            raise ValueError(f"{where}unit is for times that are numbers: with format leave it out")


def seconds_of(
    column: str | int, values: pa.Array, unit: str | None = None, format: str | None = None
) -> pa.Array:
    """Return times as seconds since 1970, as integers or floats. Unreadable texts become missing.

    Fractions of a second are rounded down. Numbers in seconds keep their Arrow type.

    Args:
        column: name or place of the column, for error messages.
        values: numbers, Arrow timestamps or dates, or texts ``[B]``.
        unit: unit of times that are numbers: a key of `UNITS`. Default: None, which means seconds.
        format: format of texts in the notation of `strptime`, or 'iso' for ISO 8601. Texts without
            a time zone are UTC. A format is also applied to the digits of integers, such as
            20260131. Default: None, which means that texts are ISO 8601, and integers count `unit`
            since 1970.

    Raises:
        ValueError: the values are of a type that cannot be a time, or are texts that need a format.

    Example:
        >>> seconds_of("ts", pa.array([1_700_000_000_123]), "ms").to_pylist()
        [1700000000]
        >>> seconds_of("ts", pa.array(["2023-11-14", "soon"]), format="%Y-%m-%d").to_pylist()
        [1699920000, None]
        >>> seconds_of("day", pa.array([20231114]), format="%Y%m%d").to_pylist()
        [1699920000]
    """
    if pa.types.is_null(values.type):
        return values.cast(pa.float64())
    values = decoded(values)
    kind = values.type
    if is_text(kind):
        if format is None and not _is_iso(values):
            raise ValueError(
                f"column {column!r} must be seconds or timestamps, it is texts such as "
                f"{_first(values)!r}: convert it, pandas.to_datetime(column), or name the format "
                "of the texts, format='%Y-%m-%d %H:%M:%S' or 'iso'"
            )
        values = _parsed(values, format or _ISO)
        kind = values.type
    elif format is not None and pa.types.is_integer(kind):  # digits, as in 20260131
        values = _parsed(values.cast(pa.string()), format)
        kind = values.type
    if pa.types.is_date(kind):
        values = values.cast(pa.timestamp("s"), safe=False)
        kind = values.type
    if pa.types.is_timestamp(kind):
        factor = UNITS[kind.unit]
        return _whole_seconds(values.cast(pa.int64(), safe=False), factor)
    if pa.types.is_integer(kind):
        return _whole_seconds(values, UNITS[unit or "s"])
    if pa.types.is_floating(kind):
        factor = UNITS[unit or "s"]
        return pc.floor(values if factor == 1 else pc.divide(values, float(factor)))
    raise ValueError(
        f"column {column!r} must be seconds or timestamps, it is {kind}: convert it, "
        "pandas.to_datetime(column)"
    )


def _whole_seconds(values: pa.Array, factor: int) -> pa.Array:
    if factor == 1:
        return values
    numbers = values.cast(pa.int64())
    # Arrow's division rounds toward zero, but a time before 1970 must be rounded down.
    quotient = pc.divide(numbers, factor)
    is_above = pc.greater(pc.multiply(quotient, factor), numbers)
    return pc.subtract(quotient, is_above.cast(pa.int64()))


def _parsed(texts: pa.Array, format: str) -> pa.Array:
    if format != _ISO:
        return pc.strptime(texts, format=format, unit="s", error_is_null=True)
    import pandas as pd

    series = pd.Series(texts.to_numpy(zero_copy_only=False))
    times = pd.to_datetime(series, format="ISO8601", errors="coerce", utc=True)
    return pa.array(times.astype("datetime64[s, UTC]"), from_pandas=True)


def _is_iso(texts: pa.Array) -> bool:
    """Return True if the first text is a time in ISO 8601, or if there is no text."""
    first = texts.drop_null()[:1]
    return _parsed(first, _ISO).null_count == 0


def _first(texts: pa.Array) -> str:
    there = texts.drop_null()
    return str(there[0].as_py()) if len(there) else ""
