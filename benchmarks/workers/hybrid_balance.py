# SPDX-License-Identifier: Apache-2.0
"""Rows per worker after the workers have inserted all keys of a table (`hybrid_parallel.py`).

python -m mindspore_rec.launch -n N benchmarks/workers/hybrid_balance.py KEYS
"""

from __future__ import annotations

import sys

import bench_common
import mindspore as ms
import numpy as np

import mindspore_rec as mr
from mindspore_rec.parallel import worker_group

_CHUNK = 250_000


def main() -> None:
    """Insert a share of the keys on each worker, and print the number of rows of each worker."""
    group = worker_group()
    lookup = mr.HashEmbeddingLookup(1, ms.int64, name="balance")
    keys = int(sys.argv[1])
    for start in range(0, keys, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, keys))[group.rank :: group.size]
        lookup.embedding_table.insert_rows(bench_common.spread_keys(numbers))
    group.barrier()
    rows = group.all_gather_json(int(lookup.embedding_table.stats()["rows"]))
    if group.rank == 0:
        print(f"rows: {','.join(map(str, rows))}")


if __name__ == "__main__":
    main()
