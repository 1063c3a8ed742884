# SPDX-License-Identifier: Apache-2.0
"""Writes to an SSD tier until it is killed; tells what was acknowledged, a line a flush.

Every row holds the number of the round that wrote it. Round r writes all keys k with
(k + r) % 3 != 0 and erases the keys k with (k + 7 * r) % 50 == 0.
"""

from __future__ import annotations

import importlib.util
import sys

import numpy as np

KEYS = 3000
ROW = 48


def rows_of(keys: np.ndarray, number: int) -> np.ndarray:
    """int64 [n, 6]: key and round in every row, and what makes each word differ."""
    words = np.arange(ROW // 8)
    return (keys[:, None] * 1_000_003 + number * 31 + words).astype(np.int64)


def written(number: int) -> np.ndarray:
    """The keys that a round writes."""
    keys = np.arange(KEYS, dtype=np.int64)
    return keys[(keys + number) % 3 != 0]


def erased(number: int) -> np.ndarray:
    """The keys that it erases afterwards."""
    keys = np.arange(KEYS, dtype=np.int64)
    return keys[(keys + 7 * number) % 50 == 0]


def main(library: str, path: str, number: int) -> None:
    """Rounds from `number` on, for ever."""
    # The module alone: importing MindSpore would take as long as fifty rounds.
    spec = importlib.util.spec_from_file_location("_native", library)
    assert spec is not None and spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    store = native.SsdStore(path, ROW, segment_bytes=256 << 10, gc_ratio=1.2)
    while True:
        keys = written(number)
        store.write(keys, rows_of(keys, number))
        store.erase(erased(number))
        print("done", number, flush=True)
        if number % 3 == 0:
            store.flush()
            print("flushed", number, flush=True)
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
