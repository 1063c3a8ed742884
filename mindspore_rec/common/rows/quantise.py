# SPDX-License-Identifier: Apache-2.0
"""Rows of int8 and int4: each row has a float16 scale, a float16 offset, and codes of 8 or 4 bits.

A code means the number `offset + scale * code`. This module is the NumPy reference for the native
tables of a predictor (csrc/readers/). The results of this module and of the native tables are
bitwise identical.
"""

from __future__ import annotations

import numpy as np

from mindspore_rec.common.digests.digest import NUMBERS

__all__ = [
    "BITS",
    "ROWS",
    "check_rows",
    "dequantise",
    "from_bytes",
    "quantise",
    "rows_of_bits",
    "to_bytes",
]

BITS = {"int8": 8, "int4": 4}
ROWS = NUMBERS  # types of rows of a predictor and of an export

_LARGEST = 65504.0  # of float16
_LEAST = np.float16(2**-24)  # above 0


def rows_of_bits(bits: int) -> str:
    """Return 'int8' for 8 bits per number, 'int4' for 4 bits, and 'float32' for any other `bits`.

    Example:
        >>> rows_of_bits(4), rows_of_bits(32)
        ('int4', 'float32')
    """
    return next((rows for rows, each in BITS.items() if each == bits), "float32")


def quantise(rows: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scale, the offset and the codes of each row.

    The offset is the row's least number, rounded down to a float16. The scale is the least float16
    for which `offset + scale * greatest code` is at least the row's greatest number. The error of
    each number is at most half the scale. If all numbers of a row are equal, each code of the row
    is the least code for which the scale fits into a float16. The scale of a row of equal numbers
    is the float16 for which `offset + scale * code` is nearest to the row's number. For a row of
    equal numbers up to 65504, the error is at most a millionth of the number or 3e-8, whichever is
    greater. For a row of equal numbers above 65504, the error is at most 1/2048 of the number.
    Numbers below -65504 or above 65504 * (2^bits - 1) do not fit, and become the nearest possible
    number. If a row has an infinity or a NaN, all numbers in the row become NaN. In a row of NaN,
    the scale and the offset are NaN, and all codes are 0.

    Args:
        rows: floats `[n, dim]`.
        bits: 8 or 4.

    Returns:
        scale: float16 `[n]`.
        offset: float16 `[n]`.
        codes: uint8 `[n, dim]` for 8 bits, or `[n, (dim + 1) // 2]` for 4 bits. With 4 bits, each
        byte contains two codes, and the lower half is the first code. With an odd dim, the upper
        half of the last byte is 0.

    Raises:
        ValueError: `rows` has an illegal shape, or the number of bits is not supported.

    Example:
        >>> scale, offset, codes = quantise(np.array([[-1.0, 0.0, 0.875]], np.float32), 4)
        >>> float(scale[0]), float(offset[0]), codes.tolist()
        (0.125, -1.0, [[128, 15]])
        >>> dequantise(scale, offset, codes, 4, 3).tolist()
        [[-1.0, 0.0, 0.875]]
    """
    _check_bits(bits)
    rows = np.asarray(rows, np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(f"rows must be [n, dim], dim at least 1, got {rows.shape}")
    finite = np.isfinite(rows).all(axis=1)
    wide = np.where(finite[:, None], rows, 0).astype(np.float64)
    most = 2**bits - 1
    offset = _half_down(wide.min(axis=1) + 0.0)  # never -0
    base = offset.astype(np.float64)
    rest = wide.max(axis=1) - base
    scale = _half_up(rest / most + 0.0)
    step = scale.astype(np.float64)
    step[step == 0] = 1.0
    codes = np.clip(np.rint((wide - base[:, None]) / step[:, None]), 0, most).astype(np.uint8)
    equal = wide.max(axis=1) == wide.min(axis=1)
    one = np.clip(np.ceil(rest / _LARGEST), 1, most)
    nearest = np.clip(rest / one, 0, _LARGEST).astype(np.float32).astype(np.float16)
    scale[equal] = np.where((nearest == 0) & (rest > 0), _LEAST, nearest)[equal]
    codes[equal] = np.where(nearest == 0, 0, one)[equal, None]
    codes[~finite] = 0
    scale[~finite] = offset[~finite] = np.float16(np.nan)
    return scale, offset, codes if bits == 8 else _packed(codes)


def dequantise(
    scale: np.ndarray, offset: np.ndarray, codes: np.ndarray, bits: int, dim: int
) -> np.ndarray:
    """Compute rows, float32 `[n, dim]`, from their scales, offsets and codes.

    Args:
        scale: float16 `[n]`, from `quantise`.
        offset: float16 `[n]`.
        codes: uint8 `[n, bytes]`.
        bits: 8 or 4.
        dim: number of values in a row.

    Raises:
        ValueError: shapes do not fit, or the number of bits is not supported.

    Example:
        >>> rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
        >>> near = dequantise(*quantise(rows, 8), 8, 4)
        >>> bool(np.abs(near - rows).max() < 0.002)
        True
    """
    _check_bits(bits)
    width = dim if bits == 8 else (dim + 1) // 2
    if codes.ndim != 2 or codes.shape[1] != width:
        raise ValueError(f"codes must be [n, {width}] for dim {dim}, got {codes.shape}")
    if not scale.shape == offset.shape == codes.shape[:1]:
        raise ValueError(
            f"scale and offset must be [{len(codes)}], got {scale.shape} and {offset.shape}"
        )
    if bits == 4:
        both = np.stack([codes & 15, codes >> 4], axis=2)
        codes = both.reshape(len(codes), 2 * width)[:, :dim]
    # The product of a scale (11 bits) and a code (8 bits) is exact in float32, so only the sum is
    # rounded, as in a fused operation.
    scaled = codes.astype(np.float32) * scale.astype(np.float32)[:, None]
    return np.asarray(scaled + offset.astype(np.float32)[:, None])


def to_bytes(rows: np.ndarray, bits: int) -> np.ndarray:
    """Return rows in the native format: uint8 `[n, 4 + code bytes]` with scale, offset and codes.

    Args and Raises: as for `quantise`.

    Example:
        >>> to_bytes(np.array([[-1.0, 0.0, 0.875]], np.float32), 4).tolist()
        [[0, 48, 0, 188, 128, 15]]
    """
    scale, offset, codes = quantise(rows, bits)
    halves = np.stack([scale, offset], axis=1).astype("<f2").view(np.uint8)
    return np.concatenate([halves, codes], axis=1)


def from_bytes(rows: np.ndarray, bits: int, dim: int) -> np.ndarray:
    """Convert bytes from `to_bytes` back to rows, float32 `[n, dim]`.

    Raises:
        ValueError: shapes do not fit, or the number of bits is not supported.
    """
    halves = np.ascontiguousarray(rows[:, :4]).view("<f2")
    return dequantise(halves[:, 0], halves[:, 1], rows[:, 4:], bits, dim)


def check_rows(rows: str, argument: str = "rows") -> None:
    """Raise ValueError unless a name is in `ROWS`."""
    if rows not in ROWS:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, ROWS))}, got {rows!r}")


def _check_bits(bits: int) -> None:
    if bits not in BITS.values():
        raise ValueError(f"bits must be 8 or 4, got {bits!r}")


def _half_down(numbers: np.ndarray) -> np.ndarray:
    """Clip numbers to [-65504, 65504], and round down to float16."""
    near = np.clip(numbers, -_LARGEST, _LARGEST).astype(np.float32).astype(np.float16)
    above = (near.astype(np.float64) > numbers) & (near > -_LARGEST)
    near[above] = np.nextafter(near[above], np.float16(-np.inf))
    return near


def _half_up(numbers: np.ndarray) -> np.ndarray:
    """Clip numbers to [0, 65504], and round up to float16."""
    near = np.clip(numbers, 0, _LARGEST).astype(np.float32).astype(np.float16)
    below = (near.astype(np.float64) < numbers) & (near < _LARGEST)
    near[below] = np.nextafter(near[below], np.float16(np.inf))
    return near


def _packed(codes: np.ndarray) -> np.ndarray:
    if codes.shape[1] % 2:
        codes = np.concatenate([codes, np.zeros((len(codes), 1), np.uint8)], axis=1)
    return codes[:, 0::2] | codes[:, 1::2] << 4
