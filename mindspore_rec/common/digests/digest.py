# SPDX-License-Identifier: Apache-2.0
"""Digest of a table: one number to check whether two tables have the same rows.

The digest of a row is 64 bits, computed from its key and the bytes of its value. The digest of a
table is the sum of its rows' digests modulo 2^64, so that the digest does not depend on the order
of rows, on threads or on tiers. If exactly one 8-byte word of one row changes, the digest of the
table always changes. All other changes leave the digest unchanged only by chance, with a
probability of 1 in 2^64. A digest detects faults, but it does not protect against forgery.

The digest of a value is computed from its float32 form, whatever the table's precision. The digest
of an int8 or int4 row is computed from the bytes of scale, offset and codes, and differs from the
digest of the same row in float32. A digest excludes optimizer state, counts and ages, which
predictors do not store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec import _native

__all__ = ["MOST_PARTS", "NUMBERS", "DigestSum", "TableDigest", "check_parts", "sum_of", "to_text"]

MOST_PARTS = 1 << 16  # of a table
NUMBERS = ("float32", "int8", "int4")  # types of the numbers whose bytes are digested
_MASK = (1 << 64) - 1


def to_text(digest: int) -> str:
    """Convert a digest to 16 hexadecimal digits. Manifests and JSON contain digests in this form.

    Example:
        >>> to_text(2**64 + 17)
        '0000000000000011'
    """
    return f"{digest & _MASK:016x}"


def sum_of(texts: Iterable[str]) -> str:
    """Return the digest of several parts together: the sum of the parts' digests.

    Example:
        >>> sum_of(["ffffffffffffffff", "0000000000000011"])
        '0000000000000010'
    """
    return to_text(sum(int(text, 16) for text in texts))


def check_parts(parts: int, part: int = 0) -> None:
    """Check the number of parts, and the index of one part.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> check_parts(4, 4)
        Traceback (most recent call last):
        ValueError: part must be in [0, 3], got 4
    """
    if type(parts) is not int or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"parts must be in [1, {MOST_PARTS}], got {parts!r}")
    if type(part) is not int or not 0 <= part < parts:
        raise ValueError(f"part must be in [0, {parts - 1}], got {part!r}")


@dataclass(frozen=True)
class TableDigest:
    """Digests of the parts into which a table's rows are divided by key.

    Each part contains the keys whose hashes are in one range. Comparing the parts of two tables
    shows where the tables differ.

    Attributes:
        numbers: type of the numbers in the digested rows: 'float32', 'int8' or 'int4'.
        rows: number of rows in each part.
        sums: digest of each part.

    Example:
        >>> TableDigest("float32", (1, 2), (2**64 - 1, 17)).digest
        '0000000000000010'
    """

    numbers: str
    rows: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return sum(self.rows)

    @property
    def digest(self) -> str:
        """The digest of the table, 16 hexadecimal digits."""
        return to_text(sum(self.sums))

    def to_json(self) -> dict[str, Any]:
        """Return the digest as a dict that `from_json` reads."""
        return {
            "numbers": self.numbers,
            "rows": self.row_count,
            "digest": self.digest,
            "parts": [
                [rows, to_text(each)] for rows, each in zip(self.rows, self.sums, strict=True)
            ],
        }

    def differing_parts(self, other: TableDigest) -> list[int]:
        """Return the indices of the parts that differ between this digest and another digest."""
        mine, theirs = (list(zip(d.rows, d.sums, strict=True)) for d in (self, other))
        return [part for part in range(len(mine)) if mine[part] != theirs[part]]

    @classmethod
    def from_json(cls, found: Any) -> TableDigest:
        """Convert a dict that `to_json` returned back to a digest.

        Raises:
            ValueError: the argument does not describe a digest.
        """
        try:
            parts = [(rows, int(text, 16)) for rows, text in found["parts"]]
            numbers = found["numbers"]
            fits = numbers in NUMBERS and 1 <= len(parts) <= MOST_PARTS
            fits = fits and all(type(rows) is int and 0 <= rows for rows, _ in parts)
            fits = fits and all(0 <= each <= _MASK for _, each in parts)
        except (TypeError, LookupError, ValueError):
            fits = False
        if not fits:
            raise ValueError("it is no description of a table's digest")
        return cls(numbers, tuple(rows for rows, _ in parts), tuple(each for _, each in parts))


class DigestSum:
    """Sum of row digests; rows may be added in several calls and in any order.

    Args:
        numbers: as in `TableDigest`.
        parts: number of parts, 1 to 65,536. Default: 1.

    Example:
        >>> keys, values = np.array([7, -1]), np.array([[0.5], [2]], np.float32)
        >>> both, one_by_one = DigestSum("float32"), DigestSum("float32")
        >>> both.add(keys, values)
        >>> for i in (1, 0):
        ...     one_by_one.add(keys[i : i + 1], values[i : i + 1])
        >>> both.total == one_by_one.total
        True
    """

    def __init__(self, numbers: str, parts: int = 1) -> None:
        self._numbers = numbers
        self._rows = np.zeros(parts, np.int64)
        self._sums = np.zeros(parts, np.uint64)

    def add(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Add rows.

        Args:
            keys: int64 `[n]`, each key once.
            rows: float32 `[n, dim]`; or uint8 `[n, bytes]` with the scale, the offset and the codes
                of each row.
        """
        keys = np.ascontiguousarray(keys, np.int64)
        self.add_digests(keys, _native.row_digests(keys, np.ascontiguousarray(rows)))

    def add_digests(self, keys: np.ndarray, digests: np.ndarray) -> None:
        """Add rows, given their keys, int64 `[n]`, and their digests, uint64 `[n]`."""
        if len(self._sums) == 1:
            self._rows[0] += len(keys)
            self._sums += digests.sum(dtype=np.uint64)  # of arrays: modulo 2^64 without a warning
            return
        parts = _native.digest_parts(keys, len(self._sums))
        np.add.at(self._rows, parts, 1)
        np.add.at(self._sums, parts, digests)

    @property
    def total(self) -> TableDigest:
        """Digest of all rows added so far."""
        return TableDigest(self._numbers, tuple(self._rows.tolist()), tuple(self._sums.tolist()))
