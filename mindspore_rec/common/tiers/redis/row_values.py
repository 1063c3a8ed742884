# SPDX-License-Identifier: Apache-2.0
"""Rows as values on the server: the bytes of a row, then a checksum.

Version 0.1 wrote only the bytes of a row. A value without a checksum is recognised by its length.
With `leftover="keep"`, values without a checksum are legal. Each row that this version writes has a
checksum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mindspore_rec import _native

__all__ = ["CHECK_BYTES", "RowValues"]

CHECK_BYTES = _native.CHECK_BYTES  # CRC32C of the key's 8 little-endian bytes and the row's
_MOST_NAMED = 10


class RowValues:
    """Check values of a table's rows, and extract the rows.

    Args:
        row_bytes: size of a row in bytes.
        subject: name of the tier in error messages.
        unchecked: True if values without a checksum are legal.
    """

    def __init__(self, row_bytes: int, subject: str, unchecked: bool) -> None:
        self._row_bytes = row_bytes
        self._subject = subject
        self._unchecked = unchecked

    def take(
        self, values: Sequence[bytes], keys: np.ndarray, order: np.ndarray, rows: np.ndarray
    ) -> int:
        """Decode `values[i]`, the value of key `keys[order[i]]`, into `rows[order[i]]`, for each i.

        Returns:
            Number of bytes of the values.

        Raises:
            RowDamagedError: a value has an illegal length, or a row does not match its checksum.
        """
        if not rows.flags.c_contiguous:
            own = np.ascontiguousarray(rows)
            taken = self.take(values, keys, order, own)
            rows[...] = own
            return taken
        lengths = set(map(len, values))
        if lengths - {self._row_bytes + CHECK_BYTES}:
            self._check_lengths(values, keys, order)
            plain = np.array([len(value) == self._row_bytes for value in values])
            bare = b"".join([value for value in values if len(value) == self._row_bytes])
            rows[order[plain]] = np.frombuffer(bare, np.uint8).reshape(-1, self._row_bytes)
            values = [value for value in values if len(value) != self._row_bytes]
            order = order[~plain]
            return len(bare) + self._take_checked(values, keys, order, rows)
        return self._take_checked(values, keys, order, rows)

    def _take_checked(
        self, values: Sequence[bytes], keys: np.ndarray, order: np.ndarray, rows: np.ndarray
    ) -> int:
        packed = b"".join(values)
        damaged = _native.unpack_checked_rows(keys, packed, order, rows)
        if len(damaged):
            wrong = np.sort(keys[order[damaged]]).tolist()
            named = ", ".join(map(str, wrong[:_MOST_NAMED]))
            more = f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
            raise _native.RowDamagedError(
                f"{self._subject}: the rows of keys {named}{more} do not match their checksums; "
                "they have changed on the server"
            )
        return len(packed)

    def _check_lengths(self, values: Sequence[bytes], keys: np.ndarray, order: np.ndarray) -> None:
        legal = [self._row_bytes + CHECK_BYTES]
        if self._unchecked:
            legal.append(self._row_bytes)
        wrong = next((i for i, value in enumerate(values) if len(value) not in legal), None)
        if wrong is not None:
            raise _native.RowDamagedError(
                f"{self._subject}: the row of key {keys[order[wrong]]} has {len(values[wrong])} "
                f"bytes, not {legal[0]} with its checksum; someone else writes to these keys"
            )
