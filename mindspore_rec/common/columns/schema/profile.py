# SPDX-License-Identifier: Apache-2.0
"""Profile of one column of a sample: the values, their frequencies and their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import is_list
from mindspore_rec.common.columns.schema.text_forms import TextForm, form_of_texts

__all__ = ["Profile", "profile_of"]

_GREATEST_INTEGER = float(1 << 63)
_GREATEST_DIGITS = 1e18  # of whole numbers in texts


@dataclass(frozen=True, eq=False)
class Profile:
    """Properties of the values of one column of a sample.

    Args:
        name: name of the column.
        family: 'nothing' (all values are missing), 'bool', 'number', 'text', 'time', 'list' or
            'other' (values of a type that no kind of column reads).
        type: Arrow type of the values; for lists, the Arrow type of the lists' elements.
        codes: for each row, the index of the row's value in `values`, or -1 if the value is
            missing, int64 ``[rows]``. For lists, `codes` has an entry for each value of each list.
        values: the different values that are not missing, in the order of their first occurrence.
        counts: number of occurrences of each value, int64 ``[len(values)]``.
        numbers: the values as float64 if they are numbers or times (seconds since 1970), else None.
        form: `TextForm` of the values if they are texts, else None.
        lengths: for lists, number of values of each row, int64 ``[rows]``; -1 for a missing list.

    Example:
        >>> price = profile_of("price", pa.chunked_array([["3,5", None, "2,0", "3,5"]]))
        >>> price.family, price.form.decimal, price.distinct, price.missing_share
        ('number', ',', 2, 0.25)
    """

    name: str
    family: str
    type: pa.DataType
    codes: np.ndarray
    values: pa.Array
    counts: np.ndarray
    numbers: np.ndarray | None = None
    form: TextForm | None = None
    lengths: np.ndarray | None = None

    @property
    def rows(self) -> int:
        """Number of rows in the sample."""
        return len(self.codes if self.lengths is None else self.lengths)

    @property
    def distinct(self) -> int:
        """Number of different values that are not missing."""
        return len(self.values)

    @property
    def missing(self) -> np.ndarray:
        """True for each row without a value, bool ``[rows]``."""
        return (self.codes if self.lengths is None else self.lengths) < 0

    @property
    def missing_share(self) -> float:
        """Share of rows without a value."""
        return float(self.missing.mean()) if self.rows else 0.0

    @property
    def there(self) -> int:
        """Number of rows with a value."""
        return self.rows - int(self.missing.sum())

    @property
    def is_whole(self) -> bool:
        """True if all numbers are whole and fit int64, which means that they may be categories."""
        if self.family != "number" or self.numbers is None or not len(self.numbers):
            return False
        if pa.types.is_integer(self.type):
            return not self.is_beyond_int64
        if self.form is not None:
            return self.form.is_whole and bool((np.abs(self.numbers) < _GREATEST_DIGITS).all())
        # Above `most`, several integers are rounded to the same float.
        most = 2.0 ** (np.finfo(self.type.to_pandas_dtype()).nmant + 1)
        legal = (np.abs(self.numbers) <= most) & (np.trunc(self.numbers) == self.numbers)
        return bool(legal.all())

    @property
    def is_beyond_int64(self) -> bool:
        """True if the values are integers, and some of them do not fit int64."""
        if self.numbers is None or not pa.types.is_uint64(self.type):
            return False
        return bool(len(self.numbers) and self.numbers.max() >= _GREATEST_INTEGER)

    def row_numbers(self) -> np.ndarray:
        """Return the column's number in each row, float64 ``[rows]``; NaN if missing."""
        assert self.numbers is not None
        return np.append(self.numbers, np.nan)[self.codes]

    def example(self) -> Any:
        """Return the most frequent value as a Python object; None if there is none."""
        return self.values[int(self.counts.argmax())].as_py() if self.distinct else None


def profile_of(name: str, column: pa.ChunkedArray | pa.Array) -> Profile:
    """Return the profile of a column of any Arrow type.

    Args:
        name: name of the column.
        column: the values ``[rows]``. NaN is a missing value.

    Example:
        >>> ids = profile_of("user", pa.chunked_array([[7.0, float("nan"), 9.0]]))
        >>> ids.family, ids.is_whole, ids.missing.tolist()
        ('number', True, [False, True, False])
        >>> profile_of("tags", pa.array([[1, 2], None, []])).lengths.tolist()
        [2, -1, 0]
    """
    values = _plain(column)
    kind = values.type
    if pa.types.is_null(kind):
        return _profile(name, "nothing", pa.array([None] * len(values), pa.string()))
    if is_list(kind):
        return _list_profile(name, values)
    try:
        return _flat_profile(name, values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return _other_profile(name, values)


def _flat_profile(name: str, values: pa.Array) -> Profile:
    kind = values.type
    if pa.types.is_float16(kind):
        made = _flat_profile(name, values.cast(pa.float32()))
        return _replaced(made, type=kind)
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), None, values)
    if pa.types.is_boolean(kind):
        return _profile(name, "bool", values)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        made = _profile(name, "number", values)
        return _with_numbers(made, made.values.cast(pa.float64(), safe=False))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        made = _profile(name, "time", values)
        return _with_numbers(made, _seconds(made.values))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_profile(_profile(name, "text", values))
    return _other_profile(name, values)


def _text_profile(made: Profile) -> Profile:
    """Return the profile of texts, in which texts such as 'n/a' count as missing."""
    if not made.distinct:
        return _replaced(made, family="nothing")
    form = form_of_texts(made.values)
    keep = np.flatnonzero(~form.is_missing)
    places = np.full(made.distinct + 1, -1, np.int64)
    places[keep] = np.arange(len(keep))
    return _replaced(
        made,
        family=form.family if len(keep) else "nothing",
        codes=places[made.codes],
        values=made.values.take(pa.array(keep)),
        counts=made.counts[keep],
        numbers=None if form.numbers is None else form.numbers[keep],
        form=form,
    )


def _list_profile(name: str, lists: pa.Array) -> Profile:
    if pa.types.is_fixed_size_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(lists), -1).cast(pa.int64())
    inner = profile_of(name, lists.flatten())
    family = "other" if inner.lengths is not None or inner.family == "other" else "list"
    return _replaced(
        inner,
        family="nothing" if inner.family == "nothing" else family,
        lengths=lengths.to_numpy(zero_copy_only=False),
        # Texts in lists are not parsed as numbers.
        numbers=None if inner.form is not None else inner.numbers,
    )


def _other_profile(name: str, values: pa.Array) -> Profile:
    there = values.is_valid().to_numpy(zero_copy_only=False)
    if not there.any():
        return _profile(name, "nothing", pa.array([None] * len(values), pa.string()))
    codes = np.where(there, 0, -1).astype(np.int64)
    return Profile(name, "other", values.type, codes, values[:0], np.zeros(0, np.int64))


def _profile(name: str, family: str, values: pa.Array) -> Profile:
    encoded = pc.dictionary_encode(values)
    indices = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    known = encoded.dictionary
    counts = np.bincount(indices[indices >= 0], minlength=len(known)).astype(np.int64)
    return Profile(name, family if len(known) else "nothing", values.type, indices, known, counts)


def _with_numbers(made: Profile, numbers: pa.Array) -> Profile:
    return _replaced(made, numbers=numbers.to_numpy(zero_copy_only=False))


def _replaced(made: Profile, **changes: Any) -> Profile:
    return Profile(**{**vars(made), **changes})


def _plain(column: Any) -> pa.Array:
    """Return a column as one array; dictionary, run-end, view and extension types are decoded."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks:
            column = column.combine_chunks() if column.num_chunks > 1 else column.chunk(0)
        else:
            column = pa.array([], column.type)
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(column.storage)
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary.take(column.indices))
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column


def _seconds(times: pa.Array) -> pa.Array:
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("s"), safe=False)
    factor = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[times.type.unit]
    return pc.divide(times.cast(pa.int64(), safe=False).cast(pa.float64(), safe=False), factor)
