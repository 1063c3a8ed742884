# SPDX-License-Identifier: Apache-2.0
"""Choose rows by a hash of their place in a file, for random splits and thinned negatives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["PlaceShare", "place_shares"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class PlaceShare(NamedTuple):
    """Rows whose hash is in ``[low, high)``.

    Args:
        seed: seed of the hash.
        salt: number that identifies the purpose of the hash. Hashes with different salts are
            independent.
        low: lower bound of the hashes, at least 0.
        high: upper bound of the hashes, at most 1.
    """

    seed: int
    salt: int
    low: float
    high: float

    def mask(self, file: int, place: int, rows: int) -> np.ndarray:
        """Return bool ``[rows]``: True for each chosen row of a part."""
        drawn = place_shares(self.seed, self.salt, file, place, rows)
        return (drawn >= self.low) & (drawn < self.high)


def place_shares(seed: int, salt: int, file: int, place: int, rows: int) -> np.ndarray:
    """Return hashes in [0, 1), float64 ``[rows]``, one for each of several consecutive rows.

    Args:
        seed: seed of the hash.
        salt: number that identifies the use of the hash, such as a split.
        file: index of the file in the source.
        place: place of the first row in the file.
        rows: how many rows.

    Example:
        >>> whole = place_shares(7, 0, 0, 0, 4)
        >>> bool((place_shares(7, 0, 0, 2, 2) == whole[2:]).all())
        True
    """
    with np.errstate(over="ignore"):
        start = np.zeros(1, np.uint64)
        for each in (seed, salt, file):
            start = _mixed(start + np.uint64(each % 2**64) + _GOLDEN)
        numbers = np.arange(place, place + rows, dtype=np.uint64)
        return (_mixed(start + numbers * _GOLDEN) >> np.uint64(11)) * 2.0**-53


def _mixed(x: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers with the finalizer of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
