# SPDX-License-Identifier: Apache-2.0
"""Find the column with the time of the event, and the unit or format of its times."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.columns import MAX_EVENT_TIME
from mindspore_rec.common.columns.schema.column import (
    Column,
    TimeColumn,
)
from mindspore_rec.common.columns.schema.column_names import is_time_name
from mindspore_rec.common.columns.schema.profile import Profile
from mindspore_rec.common.columns.schema.text_forms import digit_format, reads_times
from mindspore_rec.common.columns.times import UNITS

__all__ = ["likely_time", "time_column", "time_doubt", "time_unit"]

_LIKELY_FIRST = 631_152_000.0  # 1990
_LIKELY_LAST = 2_524_608_000.0  # 2050


def time_unit(numbers: np.ndarray) -> str | None:
    """Return the unit of numbers that count time since 1970; None if no unit gives recent times.

    Args:
        numbers: different times, none of them missing.

    Example:
        >>> [time_unit(np.array([1.7e9 * factor])) for factor in (1, 1e3, 1e6, 1e9)]
        ['s', 'ms', 'us', 'ns']
        >>> time_unit(np.array([86400.0])) is None
        True
    """
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    low, high = float(numbers.min()), float(numbers.max())
    for unit, factor in UNITS.items():
        if _LIKELY_FIRST <= low / factor and high / factor < _LIKELY_LAST:
            return unit
    return None


def likely_time(profiles: Iterable[Profile]) -> str | None:
    """Return the name of the column that is probably the time of the event, or None.

    Candidates are timestamps, texts of times, and numbers whose name and size are typical of times.
    Candidates whose name is typical of times are preferred. Of several candidates, the candidate
    with the most different values is returned. A column with missing times is not a candidate.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> columns = {"n": pa.array([1, 2]), "ts": pa.array([1.7e12, 1.8e12])}
        >>> likely_time(profile_of(name, values) for name, values in columns.items())
        'ts'
    """
    candidates = [each for each in profiles if _is_candidate(each)]
    best = max(candidates, key=lambda each: (is_time_name(each.name), each.distinct), default=None)
    return None if best is None else best.name


def _is_candidate(profile: Profile) -> bool:
    if profile.lengths is not None or profile.missing.any() or profile.distinct < 2:
        return False
    if profile.numbers is None:
        return False
    if profile.family == "time":
        recent = profile.numbers.min() >= 1 and profile.numbers.max() <= MAX_EVENT_TIME
        return bool(recent)
    if profile.family != "number" or not is_time_name(profile.name):
        return False
    if time_unit(profile.numbers) is not None:
        return profile.form is None
    return _digits(profile) is not None


def _digits(time: Profile) -> str | None:
    """Return the format of times such as 20260131 (integers or texts); None for other values."""
    if not time.is_whole or time.numbers is None:
        return None
    format = digit_format(time.numbers)
    if format is None or pa.types.is_floating(time.type):
        return None
    return format if time.form is None or reads_times(time.values, format) else None


def time_column(time: Profile) -> tuple[Column, str]:
    """Return the column of the event time, and a sentence that explains the column's kind.

    Raises:
        ValueError: the values are no times, or a time is missing, before 1970 or after 2106.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> time_column(profile_of("ts", pa.array([1_700_000_000_123, 1_700_000_001_000])))[0]
        TimeColumn('ts', unit='ms')
    """
    where = f"time {time.name!r}"
    _check(where, time)
    assert time.numbers is not None
    if time.family == "time":
        return _of_times(where, time, time.numbers)
    digits = _digits(time)
    unit = time_unit(time.numbers)
    if digits is not None and (unit is None or time.form is not None):
        return _column(time, None, digits), f"The time of the event, as digits {digits}."
    unit = unit or "s"
    _check_range(where, time.numbers / UNITS[unit], f"as a number of {unit}")
    unit_or_default = None if unit == "s" else unit
    return _column(time, unit_or_default, None), f"The time of the event, in {unit} since 1970."


def time_doubt(column: Column, time: Profile) -> str | None:
    """Return a warning if most numbers of a time column would be times before 1990; else None.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> price = profile_of("price", pa.array([5.25, 46.5]))
        >>> time_doubt(time_column(price)[0], price)
        "most values of the time 'price' are times before 1990, such as 5.25 s since 1970: name
        another column if it has no times"
    """
    if time.family != "number" or column.format is not None or time.numbers is None:
        return None
    unit = column.unit or "s"
    median = float(np.quantile(time.numbers, 0.5, method="lower"))
    if median / UNITS[unit] >= _LIKELY_FIRST:
        return None
    return (
        f"most values of the time {time.name!r} are times before 1990, such as {median:.10g} "
        f"{unit} since 1970: name another column if it has no times"
    )


def _column(time: Profile, unit: str | None, format: str | None) -> Column:
    return TimeColumn(time.name, unit=unit, format=format)


def _check(where: str, time: Profile) -> None:
    if time.family == "nothing":
        raise ValueError(f"{where} is missing in all rows: name another column")
    is_half = pa.types.is_float16(time.type)
    if time.lengths is not None or time.family not in ("time", "number") or is_half:
        example = "" if time.family != "text" else f" such as {str(time.example())[:40]!r}"
        raise ValueError(
            f"{where} must be of numbers, timestamps or texts in one known format, it is "
            f"{time.type}{example}: convert it, pandas.to_datetime(column), or name another column"
        )
    if time.family == "number" and time.form is not None and _digits(time) is None:
        raise ValueError(
            f"{where} has numbers that are written as texts, such as {time.example()!r}: make "
            "numbers of them, .astype('int64')"
        )
    if pa.types.is_floating(time.type) and time.is_whole and time.numbers is not None:
        digits = digit_format(time.numbers)
        if digits is not None and time_unit(time.numbers) is None:
            raise ValueError(
                f"{where} has digits such as {time.example():.0f} as floats: make integers of "
                "them, .astype('int64')"
            )
    missing = int(time.missing.sum())
    if missing:
        raise ValueError(
            f"{where} is missing in {missing:,} of {time.rows:,} rows that were read: fill it, or "
            "leave these rows out"
        )


def _of_times(where: str, time: Profile, seconds: np.ndarray) -> tuple[Column, str]:
    _check_range(where, seconds, f"as {time.type}")
    if time.form is None:
        return _column(time, None, None), "The time of the event."
    doubt = ", in which day and month might change places" if time.form.is_doubtful else ""
    form = "ISO 8601" if time.form.format == "iso" else time.form.format
    why = f"The time of the event, as texts in the format {form}{doubt}."
    return _column(time, None, time.form.format), why


def _check_range(where: str, seconds: np.ndarray, how: str) -> None:
    legal = (seconds >= 0) & (seconds <= MAX_EVENT_TIME)
    if not legal.all():
        raise ValueError(
            f"{where} must be between 1970 and 2106, {how} it has {seconds[~legal][0]:.17g} "
            "seconds since 1970: name another column"
        )
    if seconds.max() < 1:
        raise ValueError(f"{where} must be after 1970, all times are 0: name another column")
