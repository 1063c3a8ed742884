# SPDX-License-Identifier: Apache-2.0
"""Measure Wide & Deep on hash tables: throughput, the parts of a step, and other frameworks.

    python benchmarks/wide_deep_step.py --batch 4096 16000 --precision float32,bfloat16 \\
        --peers mindspore,torch,tfra --torch-python PYTHON --tfra-python PYTHON

All train the same dense network with Adam on the same batches of Zipf-distributed ids, in
alternating steps of one run:

    ours       63-bit keys in hash tables (one of dim 16, one of dim 1, summed) with LazyAdam, and
               the dense network in each precision
    mindspore  static ids, `nn.EmbeddingLookup(sparse=True, target="CPU")`, `nn.LazyAdam` on the CPU
               target, float32
    torch      static ids, `nn.Embedding(sparse=True)` and `nn.EmbeddingBag`, `SparseAdam`, fused
               Adam; the network compiled if that is faster; autocast for bfloat16
    tfra       63-bit keys in TensorFlow Recommenders Addons' dynamic embeddings, one `tf.function`

PyTorch and TFRA run in separate processes, with the interpreters of `--torch-python` and
`--tfra-python`; a missing framework is left out. `step_parts.py` describes the parts of the step.
The script also prints the ratio of the whole step's time to a lower bound. The lower bound is the
time of the bare products (`bare_products.py`) plus the time of the tables' step without a network.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # nn.LazyAdam warns that it is deprecated

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
import step_report
from bare_products import PRECISIONS, has, precisions_of, why_not
from bench_common import seconds_of, timed
from mindspore import Parameter, Tensor, nn
from peer_process import WORKERS, Peer, installed
from step_case import StepCase
from step_parts import GivenRows, dense_runs, table_run
from wide_deep_nets import (
    DIM,
    SHAPES,
    USUAL_SHAPES,
    VanillaWideDeep,
    WideDeep,
    hash_lookups,
    layers_of_shape,
)

import mindspore_rec as mr
from mindspore_rec import tables_of
from mindspore_rec.optim import LazyAdam

PEERS = ("mindspore", "torch", "tfra")
BATCHES = 4
WARMUP = 4


@dataclasses.dataclass(frozen=True)
class Data:
    """Batches of one shape.

    Args:
        shape: name of the network's shape, a key of `SHAPES`.
        batch: samples per batch.
        rows: number of ids per table.
        ranks: int64 [K, B, F], ids below `rows`.
        dense: float32 [B, max(N, 1)].
        label: float32 [B, 1].
    """

    shape: str
    batch: int
    rows: int
    ranks: np.ndarray
    dense: np.ndarray
    label: np.ndarray

    @staticmethod
    def draw(shape: str, batch: int, args: Any) -> Data:
        """Return batches of Zipf-distributed ids."""
        fields, columns, _ = SHAPES[shape]
        rng = np.random.default_rng(args.seed)
        zipf = bench_common.Zipf(args.rows, args.zipf, rng)
        offsets = (np.arange(fields) * (args.rows // fields)).astype(np.int64)
        ranks = [(zipf.draw((batch, fields)) + offsets) % args.rows for _ in range(BATCHES)]
        dense = rng.random((batch, columns or 1)).astype(np.float32)
        label = (rng.random((batch, 1)) < 0.3).astype(np.float32)
        return Data(shape, batch, args.rows, np.stack(ranks), dense, label)

    @functools.cached_property
    def keys(self) -> list[Tensor]:
        """Return the ids as 63-bit keys."""
        return [Tensor.from_numpy(bench_common.spread_keys(r)) for r in self.ranks]

    @functools.cached_property
    def others(self) -> tuple[Tensor, Tensor]:
        """Numbers and labels."""
        return Tensor(self.dense), Tensor(self.label)


def adam(parameters: Sequence[Parameter]) -> LazyAdam:
    """Return the optimizer for all runs of mindspore_rec."""
    return LazyAdam(list(parameters), learning_rate=1e-3)


def step_of(net: nn.Cell, optimizer: nn.Cell, ids: Sequence[Tensor], data: Data) -> Any:
    """Return a function that runs a network's whole step."""
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    return seconds_of(lambda i: step(ids[i % BATCHES], *data.others).asnumpy())


def vanilla_run(data: Data) -> Callable[[int], float]:
    """Return a function that runs the step with MindSpore's own tables."""
    net = VanillaWideDeep(data.rows, data.shape)
    optimizer = nn.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    optimizer.target = "CPU"
    return step_of(net, optimizer, [Tensor(r.astype(np.int32)) for r in data.ranks], data)


def part_runs(data: Data, precision: str) -> dict[str, Callable[[int], float]]:
    """Return functions that run steps of the dense network, with constant rows."""
    rng = np.random.default_rng(1)
    fields = SHAPES[data.shape][0]
    deep = rng.random((data.batch, fields, DIM)) * 0.02 - 0.01
    wide = rng.random((data.batch, 1)) * 0.02 - 0.01

    def make() -> nn.Cell:
        rows = GivenRows("deep", deep), GivenRows("wide", wide)
        return WideDeep(*rows, data.shape, precision)

    runs = dense_runs(make, adam, (data.keys[0], *data.others))
    return timed(runs)


def peer_of(name: str, python: str, data: Data, precision: str) -> Peer:
    """Return a peer of `WORKERS` that trains the same network on the same batches."""
    fields, columns, hidden = SHAPES[data.shape]
    settings = {
        "fields": fields, "columns": columns, "hidden": hidden, "dim": DIM, "rows": data.rows,
        "threads": mr.get_num_threads(), "precision": precision,
    }  # fmt: skip
    arrays = {
        "ranks": data.ranks,
        "keys": bench_common.spread_keys(data.ranks),
        "every": bench_common.spread_keys(np.arange(data.rows)),
        "dense": data.dense[:, :columns],
        "label": data.label,
    }
    return Peer(name, python, settings, arrays)


def add_ours(case: StepCase, data: Data, precision: str, stack: ExitStack) -> None:
    """Add the runs of the mindspore_rec network in one precision."""
    lookups = hash_lookups(data.rows, f"{data.shape}.{data.batch}.{precision}")
    net = WideDeep(*lookups, data.shape, precision)
    for table in tables_of(net):
        stack.callback(table.close)
    whole = step_of(net, adam(net.trainable_params()), data.keys, data)
    case.add_ours(precision, whole, tables_of(net), part_runs(data, precision))


def add_tables(case: StepCase, data: Data, stack: ExitStack) -> None:
    """Add a measurement of the tables' step without a network."""
    lookups = hash_lookups(data.rows, f"{data.shape}.{data.batch}.alone")
    for lookup in lookups:
        stack.callback(lookup.embedding_table.close)
    optimizer = adam([p for lookup in lookups for p in lookup.trainable_params()])
    case.add("tables", seconds_of(table_run(lookups, optimizer, data.keys)))


def add_peer(
    case: StepCase, data: Data, name: str, python: str, precision: str, stack: ExitStack
) -> None:
    """Start the framework `name` of `WORKERS` in a process, and add its step at `precision`."""
    peer = peer_of(name, python, data, precision)
    stack.callback(peer.close)
    case.add(name, lambda i: peer.step(i % BATCHES), precision, peer.about)


def measure(shape: str, batch: int, args: Any, peers: dict[str, str]) -> dict[str, Any]:
    """Measure each precision for one shape and batch size; print and return the results."""
    data = Data.draw(shape, batch, args)
    case = StepCase(f"{shape}, batch {batch}", batch, layers_of_shape(shape))
    with ExitStack() as stack:
        for precision in args.precision:
            add_ours(case, data, precision, stack)
        add_tables(case, data, stack)
        if "mindspore" in peers:
            case.add("mindspore", vanilla_run(data))
        for (name, python), precision in itertools.product(peers.items(), args.precision):
            if name in WORKERS:
                add_peer(case, data, name, python, precision, stack)
        return case.measure(args.rounds, WARMUP)


def peers_of(text: str) -> list[str]:
    """Parse a comma-separated list of the frameworks to compare.

    Raises:
        ValueError: a name is not in `PEERS`.
    """
    names = list(dict.fromkeys(each for each in text.split(",") if each))
    if not set(names) <= set(PEERS):
        raise ValueError(f"peers must be of {', '.join(PEERS)}, got {text!r}")
    return names


def present(args: Any) -> dict[str, str]:
    """Return the interpreter of each installed peer; print the missing peers."""
    interpreters = {}
    for name in args.peers:
        python = "" if name == "mindspore" else str(getattr(args, f"{name}_python"))
        missing = "" if name == "mindspore" else installed(name, python)
        if missing:
            print(f"{name} is left out: {missing}")
        else:
            interpreters[name] = python
    return interpreters


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, nargs="+", default=[4096], help="samples in a step")
    parser.add_argument("--rows", type=int, default=4_000_000, help="keys in each table before")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the ids")
    parser.add_argument("--rounds", type=int, default=20, help="counted steps of each kind")
    parser.add_argument("--shape", choices=SHAPES, help="only this one; default: all but mindrec")
    parser.add_argument(
        "--precision", type=precisions_of, default="float32",
        help=f"of the dense network: of {', '.join(PRECISIONS)}, with commas",
    )  # fmt: skip
    parser.add_argument(
        "--peers", type=peers_of, default="mindspore", help=f"of {', '.join(PEERS)}, with commas"
    )
    for name in PEERS[1:]:
        parser.add_argument(
            f"--{name}-python", default=sys.executable, help=f"interpreter that has {name}"
        )
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    about = step_report.about()
    for precision in args.precision:
        if not has(precision):
            print(f"no bare products: {why_not(precision)}")
    peers = present(args)
    results = {
        shape: {str(batch): measure(shape, batch, args, peers) for batch in args.batch}
        for shape in ([args.shape] if args.shape else USUAL_SHAPES)
    }
    step_report.show_summary(results)
    bench_common.save(args.json, {"rows": args.rows, "about": about, "shapes": results})


if __name__ == "__main__":
    main()
