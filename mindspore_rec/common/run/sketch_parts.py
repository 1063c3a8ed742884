# SPDX-License-Identifier: Apache-2.0
"""Sketches of several workers, joined: for all keys, or for one worker of another number.

A worker counts its own keys only. The block of a sketch in which a key is counted and the worker
that owns the key are chosen by the same bits of one hash: blocks are equal ranges of these bits,
and so are workers. So every worker has a range of blocks for itself, and the sum of all sketches is
the sketch that one worker would have. Only a block that a boundary between two workers lies in has
keys of both. If the number of workers divides the number of blocks, there is no such block. Else
each of the two workers goes on with the counts of both. If the number of workers changes once more,
the counts are added up: the counts of the block may then be too high, never too low.

Source: csrc/policy/sketch.h, OwnerOf in csrc/util/hash.h.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mindspore_rec.common.run.share import Share

__all__ = ["joined_sketch"]

_SHARDS = 16  # of a table, each with a sketch of its own, one after another
_WORDS = 16  # uint32 of a block: its epoch, 0 in a saved block, and counters


def joined_sketch(saved: Mapping[int, bytes], bits: int, share: Share, parts: int) -> bytes:
    """Return the sketch of a share of the keys.

    Args:
        saved: the sketches of the parts that may have keys of the share, by number.
        bits: bits of a counter, 4, 8 or 16.
        share: whose keys are counted.
        parts: number of parts that the keys were shared in when the sketches were saved.
    """
    if share.is_part_of(parts):
        return saved[share.worker]
    some = next(iter(saved.values()))
    joined = np.zeros((_SHARDS, len(some) // (4 * _SHARDS * _WORDS), _WORDS), np.uint32)
    blocks = joined.shape[1]
    for number, memory in saved.items():
        own = Share(number, parts).overlapping(blocks)
        wanted = share.overlapping(blocks)
        first, end = max(own.start, wanted.start), min(own.stop, wanted.stop)
        if first < end:
            counted = np.frombuffer(memory, np.uint32).reshape(joined.shape)[:, first:end]
            joined[:, first:end] = _sum(joined[:, first:end], counted, bits)
    return joined.tobytes()


def _sum(one: np.ndarray, other: np.ndarray, bits: int) -> np.ndarray:
    """Return words with the sums of two words' counters, each at most its greatest value."""
    greatest = (1 << bits) - 1
    sums = np.zeros(one.shape, np.uint32)
    for shift in range(0, 32, bits):
        count = (one >> shift & greatest) + (other >> shift & greatest)
        sums |= np.minimum(count, greatest).astype(np.uint32) << np.uint32(shift)
    return sums
