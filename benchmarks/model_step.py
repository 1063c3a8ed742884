# SPDX-License-Identifier: Apache-2.0
"""Training throughput of every model of one task, beside the same network on vanilla tables.

    python benchmarks/model_step.py --json OUT

Networks as in each model's `criteo_x1.yaml`, on 26 ids and 13 numbers a row. Ours looks 63-bit keys
up in one hash table for all fields and trains it with LazyAdam. Vanilla has static ids,
`nn.EmbeddingLookup(sparse=True, target="CPU")` and `nn.LazyAdam` on the CPU target, everything else
being the same cells. Both take the same batches in alternating steps. `--compute-dtype float16`
adds a third: ours with the perceptrons' products in that type, and the loss scaled.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # nn.LazyAdam warns that it is deprecated

import importlib
from functools import partial
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec import tables_of
from mindspore_rec.train import TrainStep
from models.common.embedding import FieldEmbedding, FieldSum, embedding_parameters
from models.common.model import read_config
from models.common.optimizer import lazy_adam
from models.common.precision import (
    COMPUTE_DTYPES,
    check_compute_dtype,
    loss_scale,
    lower_precision,
)

MODELS = ("wide_deep", "dcn", "dcn_v2", "deepfm", "dlrm")
FIELDS, NUMBERS = 26, 13


class Loss(nn.Cell):
    """A network with its loss."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids: Tensor, numbers: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], numbers [B, N], label [B, 1] -> loss."""
        return self.loss(self.net(ids, numbers), label)


def to_vanilla(net: nn.Cell, rows: int) -> None:
    """Replace a network's tables by vanilla lookups of a fixed vocabulary."""
    for table in tables_of(net):
        table.close()
    for name, cell in list(net.cells_and_names()):
        if isinstance(cell, FieldEmbedding | FieldSum):
            sums = isinstance(cell, FieldSum)
            dim = 1 if sums else cell.dim
            lookup = nn.EmbeddingLookup(rows, dim, "normal", target="CPU", sparse=True)
            cell.table = lookup
            lookup.embedding_table.name = f"{name}.embedding_table"
            if sums:
                cell.sums = False


def our_step(name: str, keys: np.ndarray, compute_dtype: str) -> tuple[nn.Cell, nn.Cell]:
    """Return our network and its step."""
    model = importlib.import_module(f"models.{name}.config").MODEL
    config = read_config(model, "criteo_x1.yaml")
    net = model.net(config, FIELDS, NUMBERS, f"bench.{name}.{compute_dtype}", 0)
    lower_precision(net, compute_dtype)
    for table in tables_of(net):
        table.insert_rows(keys)
    of_ids = embedding_parameters(net)
    taken = {id(p) for p in of_ids}
    others = [p for p in net.trainable_params() if id(p) not in taken]
    constant = type(config.optimizer)(learning_rate=1e-3)
    scale = loss_scale(compute_dtype)
    optimizer = lazy_adam(constant, of_ids, others, 1, scale)
    return net, TrainStep(Loss(net), optimizer, scale).set_train()


def vanilla_step(name: str, rows: int) -> nn.Cell:
    """Return the step of the same network on vanilla lookups."""
    model = importlib.import_module(f"models.{name}.config").MODEL
    config = read_config(model, "criteo_x1.yaml")
    vanilla_net = model.net(config, FIELDS, NUMBERS, f"bench.{name}.vanilla", 0)
    to_vanilla(vanilla_net, rows)
    optimizer = nn.LazyAdam(vanilla_net.trainable_params(), learning_rate=1e-3)
    optimizer.target = "CPU"
    return nn.TrainOneStepCell(Loss(vanilla_net), optimizer).set_train()


def measure(name: str, args: Any) -> dict[str, float]:
    """Return samples a second of ours and of vanilla."""
    rng = np.random.default_rng(args.seed)
    zipf = bench_common.Zipf(args.rows // FIELDS, args.zipf, rng)
    offsets = np.arange(FIELDS) * (args.rows // FIELDS)
    ranks = [zipf.draw((args.batch, FIELDS)) + offsets for _ in range(4)]
    keys = [Tensor.from_numpy(bench_common.spread_keys(r)) for r in ranks]
    static = [Tensor(r.astype(np.int32)) for r in ranks]
    numbers = Tensor(rng.random((args.batch, NUMBERS), np.float32))
    label = Tensor((rng.random((args.batch, 1)) < 0.3).astype(np.float32))
    every = bench_common.spread_keys(np.arange(args.rows))
    nets, runs = [], {}
    for title, kind in {"ours": "float32", args.compute_dtype: args.compute_dtype}.items():
        if kind is not None:
            net, step = our_step(name, every, kind)
            nets.append(net)
            runs[title] = partial(_run, step, keys, numbers, label)
    runs["vanilla"] = partial(_run, vanilla_step(name, args.rows), static, numbers, label)
    times = bench_common.alternate(runs, args.rounds, 4, name)
    for table in (table for net in nets for table in tables_of(net)):
        table.close()
    found = {f"{run}_samples_per_s": args.batch / np.median(t) for run, t in times.items()}
    found["times_vanilla"] = np.median(times["vanilla"] / times["ours"])
    if args.compute_dtype is not None:
        found["times_float32"] = np.median(times["ours"] / times[args.compute_dtype])
    return {name: round(float(value), 3) for name, value in found.items()}


def _run(step: nn.Cell, ids: list[Tensor], numbers: Tensor, label: Tensor, i: int) -> None:
    step(ids[i % len(ids)], numbers, label).asnumpy()


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--rows", type=int, default=2_000_000, help="keys in the table before")
    parser.add_argument("--zipf", type=float, default=1.1, help="exponent of the ids")
    parser.add_argument("--rounds", type=int, default=20, help="counted steps of each kind")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which")
    parser.add_argument(
        "--compute-dtype", choices=COMPUTE_DTYPES[1:], help="also measure ours with it"
    )
    args = parser.parse_args()
    if args.compute_dtype is not None:
        check_compute_dtype(args.compute_dtype)
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    results = {}
    print("| model | ours, samples/s | vanilla, samples/s | ours / vanilla |\n|---|---|---|---|")
    for name in args.models:
        found = results[name] = measure(name, args)
        print(
            f"| {name} | {found['ours_samples_per_s']:,.0f} | "
            f"{found['vanilla_samples_per_s']:,.0f} | {found['times_vanilla']:.2f} |",
            flush=True,
        )
        if args.compute_dtype is not None:
            print(f"{name}, {args.compute_dtype} by float32: {found['times_float32']:.2f}")
    bench_common.save(args.json, {"batch": args.batch, "rows": args.rows, "models": results})


if __name__ == "__main__":
    main()
