# SPDX-License-Identifier: Apache-2.0
"""The network of the history checker: an answer shows which events each part of it has learned.

The row of a key in one table is the number of events of that key that were trained: its gradient is
-1 an event, and the learning rate is 1. Every row of the other table and the dense weight are the
number of the step. Each partition of the events has keys of its own. So an answer for all keys says
of which step each of its parts is, how many events of each partition were trained, and whether
these are its first ones, each exactly once.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec import CacheConfig, HashEmbeddingLookup

__all__ = ["BATCH", "INPUTS", "KEYS", "KEYS_OF", "SCHEMA", "WIDTH", "Counting", "NegativeSum"]

KEYS = 150
KEYS_OF = (range(110), range(110, 130), range(130, KEYS))  # of each partition, and of no other
BATCH = 20  # events of a step
WIDTH = 3  # numbers of an answer's row: count, mark of the row, mark of the dense weight
SCHEMA = pa.schema({"key": pa.int64(), "number": pa.int64()})
INPUTS = ["ids:INT64:-1,1"]


class Counting(nn.Cell):
    """A row of each table, and the weight, side by side: `[B, 1]` keys to `[B, 3]` numbers.

    Args:
        name: first part of the tables' names.
        redis: URL of a server that has the counts that host memory has no room for. Default: all
            are in host memory.
    """

    def __init__(self, name: str = "history", redis: str | None = None) -> None:
        super().__init__()
        cache = None
        if redis is not None:
            # Rows of a life that was killed are older or newer than the checkpoint.
            cache = CacheConfig(host_rows=80, remote=redis, prefetch=1, leftover="discard")
        self.counts = HashEmbeddingLookup(1, ms.int64, "zeros", name=f"{name}.counts", cache=cache)
        self.marks = HashEmbeddingLookup(1, ms.int64, "zeros", name=f"{name}.marks")
        self.weight = Parameter(Tensor(np.zeros((1, 1), np.float32)), name="weight")

    def construct(self, ids: Tensor) -> Tensor:
        counts = self.counts(ids).reshape((-1, 1))
        marks = self.marks(ids).reshape((-1, 1))
        return ops.concat((counts, marks, ops.zeros_like(marks) + self.weight), 1)


class NegativeSum(nn.Cell):
    """The loss: minus the sum of the counts' outputs."""

    def construct(self, output: Tensor, label: Tensor) -> Tensor:
        return label.sum() - output[:, 0].sum()
