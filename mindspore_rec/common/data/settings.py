# SPDX-License-Identifier: Apache-2.0
"""Settings of the readers: formats of text files, bad rows, thinned negatives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mindspore_rec.common.checks import check_int, check_number

__all__ = ["BadRows", "CsvFormat", "JsonLinesFormat", "Sample"]

_WIDE_ENCODINGS = ("utf16", "utf32", "ucs2", "ucs4")


@dataclass(frozen=True)
class CsvFormat:
    """Format of text files that `read` reads as CSV.

    Args:
        separator: one character between values. Default: None, which means a tab for files
            ``*.tsv``. For all other files, None means the most frequent character in the header
            among comma, semicolon, tab and bar.
        quote: character that encloses a value that contains separators. Inside an enclosed value, a
            quote is written twice. Default: ``"``. An empty text turns quoting off.
        names: names of the columns, for files without a header. Default: None, which means that the
            first line of each file is its header.
        encoding: encoding of the text, such as ``"latin-1"``. Default: ``"utf-8"``.
        decimal: decimal point of numbers, one character. Default: ``"."``.
        missing: texts that mean a missing value, in all columns. Default: in text columns, only the
            empty text means a missing value. In columns of numbers or times, the defaults are the
            empty text, ``NA``, ``NaN``, ``null`` and further texts that pyarrow treats as missing.
        types: Arrow types by column name, such as ``{"zip": pa.string()}``. Default: the types are
            inferred from the first 4 MiB of the first file.
        newlines_in_values: True if a quoted value may contain line breaks. With False, the default,
            files are read faster.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> CsvFormat(separator=";", decimal=",").separator
        ';'
    """

    separator: str | None = None
    quote: str = '"'
    names: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    missing: tuple[str, ...] | None = None
    types: Mapping[str, Any] = field(default_factory=dict)
    newlines_in_values: bool = False

    def __post_init__(self) -> None:
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"separator must be one character, got {self.separator!r}")
        if len(self.decimal) != 1:
            raise ValueError(f"decimal must be one character, got {self.decimal!r}")
        if len(self.quote) > 1:
            raise ValueError(f"quote must be one character or '', got {self.quote!r}")
        _check_encoding(self.encoding)


@dataclass(frozen=True)
class JsonLinesFormat:
    """Format of text files that `read` reads as JSON lines: one object per line.

    Args:
        types: Arrow types by column name. Default: the types are inferred from the first 4 MiB of
            the first file.
        encoding: encoding of the text. Default: ``"utf-8"``.

    Example:
        >>> JsonLinesFormat().encoding
        'utf-8'
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        _check_encoding(self.encoding)


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except LookupError:
        raise ValueError(f"encoding must be known to Python, got {encoding!r}") from None
    if encoding.lower().replace("-", "").replace("_", "").startswith(_WIDE_ENCODINGS):
        raise ValueError(
            f"encoding must write a line break as one byte, got {encoding!r}: write the file as "
            "UTF-8"
        )


@dataclass(frozen=True)
class BadRows:
    """Treatment of rows that cannot be read.

    A row cannot be read if it has too many or too few values, a value that is not of the column's
    type, or a value that is illegal in the schema. `Rows.report` returns the number of bad rows,
    and the first bad rows with file, place and reason.

    Args:
        most_share: largest share of bad rows, in [0, 1]. Default: 0, which means that the first bad
            row raises an error. The share of bad rows is checked after every 100,000 rows, and at
            the end of a pass.
        keep: file to which bad rows are written, each as a JSON line with `file`, `where`,
            `reason` and `text`. If the file exists, `read` overwrites the file. Default: None,
            which means that bad rows are only counted.

    Raises:
        ValueError: `most_share` is out of range.

    Example:
        >>> BadRows(most_share=0.01).most_share
        0.01
    """

    most_share: float = 0.0
    keep: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_number("most_share", self.most_share, low=0, high=1)


@dataclass(frozen=True)
class Sample:
    """Sample of rows: all rows with label 1, and a share of the rows with label 0.

    Whether a row is in the sample depends only on `seed`, the number of the row's file and the
    row's place in the file. A row without a label is in the sample. The negatives in the sample get
    the weight ``1 / negatives``, so the expected weighted mean of the labels in the sample equals
    the mean of all labels.

    Args:
        negatives: share of the rows with label 0 that are in the sample, in (0, 1].
        seed: seed of the random sample, at least 0. Default: 0.
        label: name of the label's column; labels are 0 or 1. Default: None, which means the labels
            of the schema. With several labels, a row is negative if all its labels are negative.
        weight: name of the column with the weights. Default: None, which means the weight column of
            the schema, or ``"weight"`` if there is none. If the weight column is read, its values
            are multiplied by the weights of the sample.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> Sample(negatives=0.1).negatives
        0.1
    """

    negatives: float
    seed: int = 0
    label: str | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        check_number("negatives", self.negatives, low=0, high=1, low_open=True)
        check_int("seed", self.seed, 0, 2**63 - 1)
