# SPDX-License-Identifier: Apache-2.0
"""Parse lines of Criteo's format into columns, and find the bad lines.

Arrow's CSV reader reads a piece as typed columns. If Arrow's reader fails, array operations find
the bad lines of the piece, and Arrow reads the remaining lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from datasets.criteo.schema import CATEGORY_FIELDS, COUNT_FIELDS, FIELDS, LABEL

__all__ = ["BAD_REASONS", "Columns", "parse"]

BAD_REASONS = ("columns", "text", "label", "number")
"""Why a line is bad, tested in this order: not 40 columns; a carriage return inside the line or
not UTF-8; a label other than 0 or 1; a count that is not a finite decimal number."""

NUMBER = r"^ *[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)? *$"

_TAB, _FEED, _RETURN = 9, 10, 13


class Columns(NamedTuple):
    """The columns parsed from the valid lines of a text, and an error code for every line.

    Args:
        label: float32 [B].
        counts: float64 [B, 13]; NaN is a missing count.
        categories: 26 Arrow arrays of length B, strings or dictionaries of strings; null is
            missing.
        bad: int8 [lines], -1 for a good line, and the index in `BAD_REASONS` for a bad line.
    """

    label: np.ndarray
    counts: np.ndarray
    categories: list[pa.Array]
    bad: np.ndarray


def parse(text: bytes) -> Columns:
    """Parse whole lines that end with a line feed.

    Args:
        text: One or more whole lines.

    Returns:
        The columns. A bad line raises no error.

    Example:
        >>> good = b"1" + b"\\t" * 39 + b"\\n"
        >>> columns = parse(good + b"not a row\\n" + good)
        >>> columns.label.tolist(), columns.bad.tolist()
        ([1.0, 1.0], [-1, 0, -1])
    """
    table = _typed(text)
    if table is not None:
        lines = table.num_rows
        return _columns(table, _counts(table), np.full(lines, -1, np.int8))
    bad = _bad_lines(text)
    table = _read(_without(text, bad >= 0), dict.fromkeys(COUNT_FIELDS, pa.string()))
    counts = np.stack([_numbers(table.column(name)) for name in COUNT_FIELDS], axis=1)
    wrong = np.isinf(counts).any(axis=1)
    bad[np.flatnonzero(bad < 0)[wrong]] = BAD_REASONS.index("number")
    return _columns(table.filter(pa.array(~wrong)), counts[~wrong], bad)


def _typed(text: bytes) -> pa.Table | None:
    """Return the table if every line is good; return None if a line is bad."""
    # Arrow would end a line at a lone carriage return, and would skip a byte order mark
    if b"\r" in text or text.startswith(b"\xef\xbb\xbf"):
        return None
    try:
        table = _read(text, dict.fromkeys(COUNT_FIELDS, pa.float64()))
    except pa.ArrowInvalid:
        return None
    labels = _one(table.column(LABEL)).dictionary.to_pylist()
    if table.column(LABEL).null_count or not set(labels) <= {"0", "1"}:
        return None
    if not all(_all_finite(table.column(name)) for name in COUNT_FIELDS):
        return None
    return table


def _read(text: bytes, count_types: dict[str, pa.DataType]) -> pa.Table:
    keyed = pa.dictionary(pa.int32(), pa.string())
    types = {**dict.fromkeys((LABEL, *CATEGORY_FIELDS), keyed), **count_types}
    if not text:
        return pa.table({name: pa.array([], types[name]) for name in FIELDS})
    return csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=list(FIELDS), block_size=len(text) + 1),
        csv.ParseOptions(
            delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False
        ),
        csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, check_utf8=True
        ),
    )


def _columns(table: pa.Table, counts: np.ndarray, bad: np.ndarray) -> Columns:
    label = _one(table.column(LABEL)).cast(pa.string()).cast(pa.float32())
    categories = [_one(table.column(name)) for name in CATEGORY_FIELDS]
    return Columns(label.to_numpy(zero_copy_only=False), counts, categories, bad)


def _counts(table: pa.Table) -> np.ndarray:
    counts = np.empty((table.num_rows, len(COUNT_FIELDS)))
    for j, name in enumerate(COUNT_FIELDS):
        counts[:, j] = _one(table.column(name)).to_numpy(zero_copy_only=False)
    return counts


def _one(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks()


def _all_finite(column: pa.ChunkedArray) -> bool:
    return pc.all(pc.is_finite(column), min_count=0).as_py()


def _bad_lines(text: bytes) -> np.ndarray:
    """Find errors without parsing numbers; return one code per line, as in `Columns.bad`."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _FEED)
    starts = np.concatenate(([0], ends[:-1] + 1))
    bad = np.full(len(ends), -1, np.int8)
    # in an empty line, the byte at the label's position is the line feed, which is not a label
    label = ((data[starts] | 1) == ord("1")) & (data[np.minimum(starts + 1, ends)] == _TAB)
    bad[~label] = BAD_REASONS.index("label")
    bad[_count(data == _RETURN, ends) > 0] = BAD_REASONS.index("text")
    if not _is_utf8(text):
        for line in np.flatnonzero(_count(data > 127, ends)):
            if not _is_utf8(text[starts[line] : ends[line]]):
                bad[line] = BAD_REASONS.index("text")
    bad[_count(data == _TAB, ends) != len(FIELDS) - 1] = BAD_REASONS.index("columns")
    return bad


def _count(hits: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the number of True values of `hits` in each line; the lines end at `ends`."""
    return np.diff(np.searchsorted(np.flatnonzero(hits), ends), prepend=0)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without(text: bytes, dropped: np.ndarray) -> bytes:
    data = np.frombuffer(text, np.uint8)
    lengths = np.diff(np.flatnonzero(data == _FEED), prepend=-1)
    return data[np.repeat(~dropped, lengths)].tobytes()


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return float64 values; null becomes NaN, and text that is no finite number becomes inf."""
    texts = _one(column)
    good = pc.fill_null(pc.match_substring_regex(texts, NUMBER), False)
    values = np.full(len(texts), np.inf)
    values[texts.is_null().to_numpy(zero_copy_only=False)] = np.nan
    chosen = texts.filter(good).to_numpy(zero_copy_only=False)
    values[good.to_numpy(zero_copy_only=False)] = chosen.astype(np.float64)
    return values
