# SPDX-License-Identifier: Apache-2.0
"""Random numbers by position: number i of a stream is a function of (seed, stream name, i).

Any range of rows can be generated alone, or in pieces of any size, and always has the same rows.
"""

from __future__ import annotations

import hashlib

import numpy as np

from mindspore_rec.feature import mix64

__all__ = ["irwin_hall", "stream_words", "uniform"]


def stream_words(seed: int, stream: str, counters: np.ndarray) -> np.ndarray:
    """Return 64 random bits for each counter.

    Args:
        seed: Any integer.
        stream: Name of the stream; streams are independent.
        counters: Integer array of any shape; all values are at least 0.

    Returns:
        uint64 array of the same shape.

    Example:
        >>> stream_words(1, "label", np.arange(2)) == stream_words(1, "label", np.array([0, 9]))
        array([ True, False])
    """
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    salt = np.uint64(int.from_bytes(digest, "little"))
    # the odd step spreads neighbouring counters before the first mix, as in SplitMix64 itself
    words = counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mix64(mix64(words + salt) ^ salt)


def uniform(words: np.ndarray) -> np.ndarray:
    """Return float64 in [0, 1) from the upper 53 bits of each word.

    Example:
        >>> uniform(np.array([0, 2**63], np.uint64))
        array([0. , 0.5])
    """
    return (words >> np.uint64(11)) * 2.0**-53


def irwin_hall(words: np.ndarray) -> np.ndarray:
    """Return nearly normal float32 numbers with mean 0 and variance 1.

    Each number is the scaled sum of the four 16-bit parts of a word. Numbers are at most 3.47 in
    absolute value, so a single number never decides a label.

    Example:
        >>> round(float(irwin_hall(stream_words(0, "x", np.arange(100_000))).std()), 1)
        1.0
    """
    total = np.zeros(words.shape, np.int64)
    for shift in (0, 16, 32, 48):
        total += ((words >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    # four uniforms on 0..65535: mean 2 * 65535, variance 4 * (65536**2 - 1) / 12
    return ((total - 2 * 65535) / np.sqrt((65536.0**2 - 1) / 3)).astype(np.float32)
