# SPDX-License-Identifier: Apache-2.0
"""The digest of rows as csrc/rows/row_digest.h defines it, in plain Python."""

from __future__ import annotations

import numpy as np

from tests.parameter.rounding_reference import mix64 as mix

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def row_digest(key: int, value: bytes) -> int:
    """Digest of one row."""
    total = mix(key + STEP & MASK)
    value += b"\0" * (-len(value) % 8)
    for i in range(len(value) // 8):
        word = int.from_bytes(value[8 * i : 8 * i + 8], "little")
        total += mix(word ^ ((i + 2) * STEP & MASK))
    return mix(total & MASK)


def table_digest(keys: np.ndarray, rows: np.ndarray) -> int:
    """Digest of rows `[n, numbers]`."""
    pairs = zip(keys.tolist(), np.ascontiguousarray(rows), strict=True)
    return sum(row_digest(key, row.tobytes()) for key, row in pairs) & MASK


def part_of(key: int, parts: int) -> int:
    """Part of a table in which a key counts."""
    return (mix(mix(key & MASK) ^ 0xD1B54A32D192ED03) >> 32) * parts >> 32
