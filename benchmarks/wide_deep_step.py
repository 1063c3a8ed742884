# SPDX-License-Identifier: Apache-2.0
"""Training throughput of Wide & Deep on hash tables, beside the same network on vanilla MindSpore.

Both train the same dense network with Adam on the same batches in alternating steps. Ours looks
63-bit keys up in hash tables (one of dim 16, one of dim 1) and updates them with LazyAdam; vanilla
has static ids, `nn.EmbeddingLookup(sparse=True, target="CPU")` and `nn.LazyAdam` on the CPU target.
The dense part alone, with the rows as plain inputs, shows what is left for the tables.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("GLOG_v", "3")  # nn.LazyAdam warns that it is deprecated

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec.nn import MLP
from mindspore_rec.optim import LazyAdam

# name -> sparse fields, dense columns, hidden layers
SHAPES: dict[str, tuple[int, int, list[int]]] = {
    "criteo_26": (26, 13, [1024, 512, 256]),
    "criteo_39": (39, 0, [1024] * 5),
}
DIM = 16


class Dense(nn.Cell):
    """The network above the embeddings."""

    def __init__(self, fields: int, columns: int, hidden: list[int]) -> None:
        super().__init__()
        self.columns = columns
        self.mlp = MLP(fields * DIM + columns, hidden, out_features=1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, deep: Tensor, wide: Tensor, dense: Tensor, label: Tensor) -> Tensor:
        """deep [B, F, 16], wide [B, F, 1], dense [B, N], label [B, 1] -> loss."""
        x = deep.reshape((deep.shape[0], -1))
        if self.columns > 0:
            x = ops.concat((x, dense), 1)
        return self.loss(self.mlp(x) + wide.sum(1), label)


class WideDeep(nn.Cell):
    """Two lookups of the same ids, then the dense network."""

    def __init__(self, deep: nn.Cell, wide: nn.Cell, dense: Dense) -> None:
        super().__init__()
        self.deep = deep
        self.wide = wide
        self.dense = dense

    def construct(self, ids: Tensor, dense: Tensor, label: Tensor) -> Tensor:
        """ids [B, F] -> loss."""
        return self.dense(self.deep(ids), self.wide(ids), dense, label)


def measure(name: str, args: Any, progress: str) -> dict[str, Any]:
    """Return samples a second of ours, vanilla and the dense part, for one shape."""
    fields, columns, hidden = SHAPES[name]
    rng = np.random.default_rng(args.seed)
    zipf = bench_common.Zipf(args.rows, args.zipf, rng)
    offsets = (np.arange(fields) * (args.rows // fields)).astype(np.int64)
    ranks = [(zipf.draw((args.batch, fields)) + offsets) % args.rows for _ in range(4)]
    keys = [Tensor.from_numpy(bench_common.spread_keys(r)) for r in ranks]
    static = [Tensor(r.astype(np.int32)) for r in ranks]
    dense = Tensor(rng.random((args.batch, columns or 1)).astype(np.float32))
    label = Tensor((rng.random((args.batch, 1)) < 0.3).astype(np.float32))

    deep = mr.HashEmbeddingLookup(DIM, ms.int64, name=f"{name}.deep")
    wide = mr.HashEmbeddingLookup(1, ms.int64, "zeros", name=f"{name}.wide")
    for lookup in (deep, wide):
        for start in range(0, args.rows, 500_000):
            numbers = np.arange(start, min(start + 500_000, args.rows))
            lookup.embedding_table.insert_rows(bench_common.spread_keys(numbers))
    net = WideDeep(deep, wide, Dense(fields, columns, hidden))
    ours = nn.TrainOneStepCell(net, LazyAdam(net.trainable_params(), learning_rate=1e-3))
    ours.set_train()

    vanilla_net = WideDeep(
        nn.EmbeddingLookup(args.rows, DIM, "zeros", target="CPU", sparse=True),
        nn.EmbeddingLookup(args.rows, 1, "zeros", target="CPU", sparse=True),
        Dense(fields, columns, hidden),
    )
    optimizer = nn.LazyAdam(vanilla_net.trainable_params(), learning_rate=1e-3)
    optimizer.target = "CPU"
    vanilla = nn.TrainOneStepCell(vanilla_net, optimizer).set_train()

    plain_net = Dense(fields, columns, hidden)
    plain = nn.TrainOneStepCell(
        plain_net, LazyAdam(plain_net.trainable_params(), learning_rate=1e-3)
    )
    plain.set_train()
    rows = Tensor(rng.random((args.batch, fields, DIM)).astype(np.float32))
    ones = Tensor(rng.random((args.batch, fields, 1)).astype(np.float32))

    runs = {
        "ours": lambda i: ours(keys[i % 4], dense, label).asnumpy(),
        "vanilla": lambda i: vanilla(static[i % 4], dense, label).asnumpy(),
        "dense_only": lambda i: plain(rows, ones, dense, label).asnumpy(),
    }
    times = bench_common.alternate(runs, args.rounds, 4, progress)
    median = {run: float(np.median(spent)) for run, spent in times.items()}
    figures: dict[str, Any] = {f"{run}_samples_per_s": args.batch / t for run, t in median.items()}
    figures.update({f"{run}_step_ms": 1e3 * t for run, t in median.items()})
    figures["times_vanilla"] = float(np.median(times["vanilla"] / times["ours"]))
    for lookup in (deep, wide):
        lookup.embedding_table.close()
    return figures


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--rows", type=int, default=4_000_000, help="keys in each table before")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the ids")
    parser.add_argument("--rounds", type=int, default=20, help="counted steps of each kind")
    parser.add_argument("--shape", choices=SHAPES, help="only this one")
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    results = {}
    for name in [args.shape] if args.shape else SHAPES:
        results[name] = measure(name, args, name)
        for figure, value in results[name].items():
            print(f"{name}: {figure:28s} {value:,.1f}")
    bench_common.save(args.json, {"batch": args.batch, "rows": args.rows, "shapes": results})


if __name__ == "__main__":
    main()
