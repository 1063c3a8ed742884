# SPDX-License-Identifier: Apache-2.0
"""A training step with 26 tables, one per column, compared with a single table.

Alternating steps look up the same ids in three ways: a lookup for each table, all tables grouped in
one operator, and one table for all columns (with distinct keys per column). The network above the
tables is only a weighted sum, so nearly all the time of a step is spent in the tables.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import mindspore_rec as mr


class Separate(nn.Cell):
    """A cell with one lookup for each column."""

    def __init__(self, tables: int, dim: int) -> None:
        super().__init__()
        self.columns = nn.CellList(
            [mr.HashEmbeddingLookup(dim, ms.int64, name=f"separate.{t}") for t in range(tables)]
        )

    def construct(self, ids: Tensor) -> Tensor:
        """ids [B, tables] -> rows [B, tables, dim]."""
        rows: tuple[Tensor, ...] = ()
        for t in range(len(self.columns)):
            rows += (self.columns[t](ids[:, t]),)
        return ops.stack(rows, 1)


class WeightedSum(nn.Cell):
    """The loss."""

    def __init__(self, embedding: nn.Cell, weight: Tensor) -> None:
        super().__init__()
        self.embedding = embedding
        self.weight = weight

    def construct(self, ids: Tensor) -> Tensor:
        """Return the weighted sum of the embeddings of all ids `[B, tables]`."""
        return (self.embedding(ids) * self.weight).sum()


def embeddings(tables: int, dim: int) -> dict[str, nn.Cell]:
    """Return three embeddings, one for each way to look up the ids."""
    grouped = [
        mr.MapParameter(f"grouped.{t}", value_shape=dim, key_dtype=ms.int64) for t in range(tables)
    ]
    return {
        "separate": Separate(tables, dim),
        "grouped": mr.GroupedEmbedding(grouped),
        "one_table": mr.HashEmbeddingLookup(dim, ms.int64, name="one_table"),
    }


def main() -> None:
    """Measure and print."""
    parser = bench_common.parser(str(__doc__))
    parser.add_argument("--tables", type=int, default=26, help="number of tables")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a batch")
    parser.add_argument("--dim", type=int, default=16, help="floats in a row")
    parser.add_argument("--rows", type=int, default=20_000, help="ids a column draws from")
    parser.add_argument("--steps", type=int, default=60, help="counted steps of each way")
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(args.seed)
    shape = (args.batch, args.tables)
    columns = np.arange(args.tables) << 32
    batches = [Tensor(rng.integers(0, args.rows, shape) + columns) for _ in range(8)]
    weight = Tensor(rng.normal(size=(*shape, args.dim)).astype(np.float32))
    steps: dict[str, Any] = {}
    for name, embedding in embeddings(args.tables, args.dim).items():
        net = WeightedSum(embedding, weight)
        optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
        steps[name] = mr.TrainStep(net, optimizer).set_train()
    runs = {
        name: (lambda i, step=step: step(batches[i % len(batches)]).asnumpy())
        for name, step in steps.items()
    }
    times = bench_common.alternate(bench_common.timed(runs), args.steps, 2 * len(batches), "steps")
    median = {name: float(np.median(spent)) * 1e3 for name, spent in times.items()}
    for name, spent in median.items():
        print(f"{name:10} {spent:7.2f} ms a step, {spent / median['one_table']:.2f} of one table")
    bench_common.save(args.json, {"milliseconds": median, "arguments": vars(args) | {"json": None}})


if __name__ == "__main__":
    main()
