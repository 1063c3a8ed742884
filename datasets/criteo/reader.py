# SPDX-License-Identifier: Apache-2.0
"""Read Criteo's tab-separated files as whole batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from datasets.common.blocks import Batch, rebatch
from datasets.criteo.lines import Piece, pieces
from datasets.criteo.parse import BAD_REASONS, Columns, parse
from datasets.criteo.schema import (
    CATEGORY_FIELDS,
    COUNT_FIELDS,
    bin_counts,
    packed_fields,
    scale_counts,
)
from mindspore_rec import category_keys

__all__ = ["BadRowError", "CriteoReader", "ReadReport", "count_keys", "encode", "read_pieces"]

_BAD_LINES_KEPT = 20


class BadRowError(ValueError):
    """Error for a bad row if ``strict`` is True.

    Args:
        line: the row's line number, counted from the first line that was read.
        reason: of `BAD_REASONS`.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line, self.reason = line, reason


@dataclass
class ReadReport:
    """Counts of good and bad rows read so far.

    Args:
        rows: Good rows.
        bad: Number of bad rows by reason: ``columns`` (not 40), ``text`` (a carriage return inside
            the line, or not UTF-8), ``label`` (not 0 or 1), ``number`` (a count that is not a
            number).
        crlf: Number of rows, good or bad, that ended with CR LF.
        first_bad: Line number (from 1) and reason of the first 20 bad rows.
    """

    rows: int = 0
    bad: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BAD_REASONS, 0))
    crlf: int = 0
    first_bad: list[tuple[int, str]] = field(default_factory=list)

    @property
    def bad_rows(self) -> int:
        """Number of bad rows, for any reason."""
        return sum(self.bad.values())

    def record(self, columns: Columns, first_line: int, crlf: int, strict: bool) -> None:
        """Add the counts of a piece of the file: good rows, bad rows and lines with CR LF.

        Args:
            columns: the parsed columns of the piece.
            first_line: line number of the piece's first line.
            crlf: number of lines of the piece that ended with CR LF.
            strict: True raises an error for a bad row.

        Raises:
            BadRowError: the piece has a bad row, and ``strict`` is True.
        """
        self.rows += len(columns.label)
        self.crlf += crlf
        bad = np.flatnonzero(columns.bad >= 0)
        if not len(bad):
            return
        where = [(first_line + int(i), BAD_REASONS[columns.bad[i]]) for i in bad[:_BAD_LINES_KEPT]]
        if strict:
            raise BadRowError(*where[0])
        self.first_bad += where[: _BAD_LINES_KEPT - len(self.first_bad)]
        numbers = np.bincount(columns.bad[bad], minlength=len(BAD_REASONS))
        for reason, number in zip(BAD_REASONS, numbers, strict=True):
            self.bad[reason] += int(number)

    def add(self, other: ReadReport) -> None:
        """Add the counts of `other`, whose lines follow directly after this report's lines."""
        before = self.rows + self.bad_rows
        self.rows += other.rows
        self.crlf += other.crlf
        for reason, number in other.bad.items():
            self.bad[reason] += number
        room = _BAD_LINES_KEPT - len(self.first_bad)
        self.first_bad += [(before + line, reason) for line, reason in other.first_bad[:room]]

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {**vars(self), "bad_rows": self.bad_rows}


class CriteoReader:
    """Batches of the rows of one file; each iteration reads the file again.

    Args:
        path: The file: 40 tab-separated columns, no header, plain or gzip.
        batch_size: Rows per batch, at least 1 (default 4096); the last batch may have fewer rows.
        strict: True raises an error at the first bad row, and for an empty file; False only counts
            bad rows (default False).
        counts_as_categories: If True, `bin_counts` bins the 13 counts, and the keys of the bins are
            added as fields I1..I13 after C1..C26 (default False).
        piece_bytes: Bytes of text parsed at a time, at least 1 (default 16 MiB). The rows do not
            depend on this number.
        on_bytes: Called with the number of bytes read from the file since the last call.

    Yields (by iteration): ``ids``, ``dense`` and ``label``. ``ids`` int64 [B, 26] or [B, 39]
        contains the keys that `category_keys` computes from the field's name and the text; an empty
        text is a missing value. ``dense`` float32 [B, 13] contains ``log(1 + x)`` of each count x,
        or 0 if the count is missing or negative. ``label`` is float32 [B, 1].

    Raises (by iteration): ValueError: a row is bad and ``strict`` is True (the message has ``path,
        line N`` and the reason), or gzip data are truncated or damaged. OSError: the file cannot be
        read.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"1\\t3" + b"\\t" * 38 + b"\\nbad\\n") and file.flush()
        ...     reader = CriteoReader(file.name)
        ...     batch = next(iter(reader))
        >>> batch["ids"].shape, batch["dense"][0, :2].round(3).tolist(), reader.report.bad_rows
        ((1, 26), [1.3860000371932983, 0.0], 1)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        batch_size: int = 4096,
        strict: bool = False,
        counts_as_categories: bool = False,
        piece_bytes: int = 16 << 20,
        on_bytes: Callable[[int], object] | None = None,
    ) -> None:
        if batch_size < 1 or piece_bytes < 1:
            raise ValueError(
                f"batch_size and piece_bytes must be at least 1, got {batch_size}, {piece_bytes}"
            )
        self._path = path
        self._batch_size = batch_size
        self._strict = strict
        self._counts_as_categories = counts_as_categories
        self._piece_bytes = piece_bytes
        self._on_bytes = on_bytes
        self.report = ReadReport()
        self.fields = packed_fields(counts_as_categories)

    def __iter__(self) -> Iterator[Batch]:
        self.report = ReadReport()
        return rebatch(self._blocks(), self._batch_size)

    def _blocks(self) -> Iterator[Batch]:
        offset, empty = 0, True
        name = os.fspath(self._path)
        for piece in pieces(self._path, self._piece_bytes):
            empty = False
            try:
                (block,) = read_pieces(
                    [piece], self.report, self._strict, self._counts_as_categories
                )
            except BadRowError as error:
                raise ValueError(f"{name}, line {error.line}: bad {error.reason}") from error
            if self._on_bytes is not None:
                self._on_bytes(piece.file_offset - offset)
            offset = piece.file_offset
            yield block
        if empty and self._strict:
            raise ValueError(f"{name} is empty")


def read_pieces(
    given: Iterable[Piece],
    report: ReadReport,
    strict: bool,
    counts_as_categories: bool,
    first_line: int = 1,
) -> Iterator[Batch]:
    """Parse pieces of lines, and yield one batch of rows per piece.

    Args:
        given: the pieces.
        report: `ReadReport` to which the counts of rows are added.
        strict: True raises an error at the first bad row; False only counts bad rows.
        counts_as_categories: add keys for the 13 binned counts, as in `CriteoReader`.
        first_line: line number, in the file, of the first line of `given` (default 1).

    Raises:
        BadRowError: a row is bad and ``strict`` is True. The line numbers in the error and in the
            report are counted within `given`: line 1 is the line `first_line` of the file.
    """
    for piece in given:
        columns = parse(piece.text)
        report.record(columns, piece.first_line - first_line + 1, piece.crlf, strict)
        yield encode(columns, counts_as_categories)


def encode(columns: Columns, counts_as_categories: bool) -> Batch:
    """Return the batch of parsed columns: keys, scaled counts, label."""
    keys = [
        category_keys(name, values)
        for name, values in zip(CATEGORY_FIELDS, columns.categories, strict=True)
    ]
    if counts_as_categories:
        keys += [count_keys(name, columns.counts[:, j]) for j, name in enumerate(COUNT_FIELDS)]
    return {
        "ids": np.stack(keys, axis=1),
        "dense": scale_counts(columns.counts),
        "label": columns.label[:, None],
    }


def count_keys(name: str, counts: np.ndarray) -> np.ndarray:
    """Bin the counts of a field, and return their keys; NaN gets the key of a missing value."""
    missing = np.isnan(counts)
    bins = np.where(missing, 0.0, bin_counts(counts)).astype(np.int64)
    return category_keys(name, pa.array(bins, mask=missing))
