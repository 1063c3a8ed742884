# SPDX-License-Identifier: Apache-2.0
"""Join the sketches of several workers into the sketch of all keys or of a share of the keys.

A worker counts only its own keys. A sketch consists of blocks. Some bits of a key's hash select
both the block that counts the key and the worker that owns the key. The hashes are divided into
equal ranges in two ways: with one range for each block, and with one range for each worker. Every
worker counts in a separate range of blocks, so the sum of all workers' sketches equals the sketch
of a job of one worker. Only a block on the boundary between two workers counts keys of both
workers. If the number of blocks is a multiple of the number of workers, every block belongs to one
worker. If a block is on a boundary, both workers of the boundary load the counts of all keys of the
block. If the number of workers changes again, both workers' counts of a boundary block are added,
so that the counts of the block may be too high, but never too low.

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
        saved: dict from a part's number to the part's sketch, for each part that may contain keys
            of `share`.
        bits: number of bits of a counter: 4, 8 or 16.
        share: share of the keys to count.
        parts: number of parts into which the keys were divided when the sketches were saved.
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
    """Add the counters of two arrays; each sum is limited to the greatest value of a counter."""
    greatest = (1 << bits) - 1
    sums = np.zeros(one.shape, np.uint32)
    for shift in range(0, 32, bits):
        count = (one >> shift & greatest) + (other >> shift & greatest)
        sums |= np.minimum(count, greatest).astype(np.uint32) << np.uint32(shift)
    return sums
