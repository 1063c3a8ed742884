# SPDX-License-Identifier: Apache-2.0
"""Count rows that cannot be read, write them to a file, and find them in a block of text."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from mindspore_rec.common.data.settings import BadRows

__all__ = ["BadRow", "BadRowCount", "BadRowReport", "good_rows", "shortened"]

_SHOWN = 100  # bad rows in a report
_TEXT = 200  # characters of a bad row
_CHECK_AFTER = 100_000


class BadRow(NamedTuple):
    """A row that could not be read.

    Args:
        file: name of the file.
        where: the place in the file: ``"line 7"`` of a text file, counted from 1 with the header,
            or ``"row 5"``, counted from 0.
        reason: reason why the row could not be read.
        text: the row's text, or the illegal value.
    """

    file: str
    where: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: {self.reason}"


@dataclass(frozen=True)
class BadRowReport:
    """Number of rows read so far, number of bad rows, and the first bad rows.

    Args:
        rows: number of rows read, including bad rows.
        bad: number of bad rows found so far.
        first: the first bad rows that were found, at most 100.
    """

    rows: int
    bad: int
    first: tuple[BadRow, ...]

    def __str__(self) -> str:
        lines = [f"{self.bad} of {self.rows} rows could not be read"]
        return "\n".join([*lines, *map(str, self.first)])


class BadRowCount:
    """Counts the bad rows of all threads and passes; a part that is read twice is counted once."""

    def __init__(self, settings: BadRows) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._parts: set[tuple[Any, ...]] = set()
        self._rows = self._bad = 0
        self._first: list[tuple[tuple[Any, ...], BadRow]] = []
        self._due = _CHECK_AFTER
        if settings.keep is not None:
            Path(settings.keep).write_bytes(b"")

    def add(self, part: tuple[Any, ...], rows: int, bad: Sequence[BadRow]) -> None:
        """Count the rows of a part.

        Raises:
            ValueError: there are more bad rows than allowed.
        """
        if bad and not self.settings.most_share:
            raise ValueError(_first_sentence(bad[0]))
        with self._lock:
            if part in self._parts:
                return
            self._parts.add(part)
            self._rows += rows
            self._bad += len(bad)
            self._first += [(part[:2], each) for each in bad[: _SHOWN - len(self._first)]]
            if bad and self.settings.keep is not None:
                with Path(self.settings.keep).open("a", encoding="utf-8") as file:
                    for each in bad:
                        file.write(json.dumps(each._asdict(), ensure_ascii=False) + "\n")
        if self._rows >= self._due:
            self._due = self._rows + _CHECK_AFTER
            self.check()

    def check(self) -> None:
        """Raise a ValueError if the share of bad rows is larger than allowed."""
        if self._bad > self.settings.most_share * self._rows:
            raise ValueError(
                f"{self._bad} of {self._rows} rows cannot be read, more than "
                f"the share {self.settings.most_share:g} that bad_rows allows; the first: "
                f"{self._in_order()[0]}"
            )

    def report(self) -> BadRowReport:
        """Return the counts so far."""
        with self._lock:
            return BadRowReport(self._rows, self._bad, tuple(self._in_order()))

    def _in_order(self) -> list[BadRow]:
        """Return the first bad rows, in the order of files and parts."""
        return [each for _, each in sorted(self._first, key=lambda one: one[0])]


def _first_sentence(bad: BadRow) -> str:
    return (
        f"{bad} (in {bad.text!r}); mend the file, or leave such rows out with "
        "bad_rows=BadRows(most_share=...)"
    )


def good_rows(
    records: Sequence[bytes], parse: Callable[[Sequence[bytes]], pa.Table], most: int
) -> tuple[list[pa.Table], list[tuple[int, Any]]]:
    """Parse records. If parsing fails, halve the list of records until the bad records are found.

    Args:
        records: lines of text.
        parse: function that parses records, and raises `pa.ArrowInvalid` if a record is bad.
        most: number of bad records after which to stop.

    Returns:
        The tables of the good records, in order; and the index and the error of each bad record,
        for at most `most` bad records.
    """
    tables: list[pa.Table] = []
    bad: list[tuple[int, Any]] = []

    def go(first: int, last: int) -> None:
        if first >= last or len(bad) >= most:
            return
        try:
            tables.append(parse(records[first:last]))
        except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
            if last - first == 1:
                bad.append((first, error))
                return
            middle = (first + last) // 2
            go(first, middle)
            go(middle, last)

    go(0, len(records))
    return tables, bad


def shortened(text: bytes) -> str:
    """Return a record as text, shortened to a maximum length."""
    shown = text[: 4 * _TEXT].decode("utf-8", "replace").rstrip("\r\n")
    return shown if len(shown) <= _TEXT else f"{shown[:_TEXT]}..."
