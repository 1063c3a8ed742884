# SPDX-License-Identifier: Apache-2.0
"""A peer of benchmarks/quantised_lookup.py: FBGEMM's inference kernels on the CPU.

The peer needs an interpreter with torch and fbgemm-gpu-cpu; see serve.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import fbgemm_gpu
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import (
    IntNBitTableBatchedEmbeddingBagsCodegen,
)
from serve import serve


@dataclass(frozen=True)
class Lookups:
    """Arguments of this worker.

    Args:
        rows: number of ids in the table.
        dim: count of numbers per row.
        bits: bits per number, 8 or 4.
        threads: the thread counts to measure. Run k uses batch `k % len(batches)` with `threads[k
            // len(batches)]` threads.
        batches: int32 [K, ids].
        offsets: int32 [bags + 1].
    """

    rows: int
    dim: int
    bits: int
    threads: list[int]
    batches: np.ndarray
    offsets: np.ndarray


def make(work: Lookups) -> tuple[dict[str, str], Callable[[int], float]]:
    """Return versions and lookup."""
    kind = SparseType.INT8 if work.bits == 8 else SparseType.INT4
    bags = IntNBitTableBatchedEmbeddingBagsCodegen(
        [("table", work.rows, work.dim, kind, EmbeddingLocation.HOST)],
        device="cpu",
        output_dtype=SparseType.FP32,
    )
    bags.fill_random_weights()
    offsets = torch.from_numpy(work.offsets)
    batches = [torch.from_numpy(ids) for ids in work.batches]
    now = [0]

    def step(k: int) -> float:
        threads = work.threads[k // len(batches)]
        if threads != now[0]:
            torch.set_num_threads(threads)
            now[0] = threads
        return float(bags(batches[k % len(batches)], offsets).shape[0])

    about = {"torch": torch.__version__, "fbgemm": str(getattr(fbgemm_gpu, "__version__", ""))}
    return about, step


if __name__ == "__main__":
    serve(make, Lookups)
