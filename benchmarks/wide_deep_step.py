# SPDX-License-Identifier: Apache-2.0
"""Training throughput of Wide & Deep on hash tables, its step taken apart, other frameworks beside.

    python benchmarks/wide_deep_step.py --batch 4096 16000 --precision float32,bfloat16 \\
        --peers mindspore,torch,tfra --torch-python PYTHON --tfra-python PYTHON

All train the same dense network with Adam on the same batches of Zipf-distributed ids, in
alternating steps of one run:

    ours       63-bit keys in hash tables (one of dim 16, one of dim 1, summed) with LazyAdam, and
               the dense network in each precision
    mindspore  static ids, `nn.EmbeddingLookup(sparse=True, target="CPU")`, `nn.LazyAdam` on the CPU
               target, float32
    torch      static ids, `nn.Embedding(sparse=True)` and `nn.EmbeddingBag`, `SparseAdam`, fused
               Adam; the network compiled where that is faster; autocast for bfloat16
    tfra       63-bit keys in TensorFlow Recommenders Addons' dynamic embeddings, one `tf.function`

The last two run in processes of their own, of the interpreters that `--torch-python` and
`--tfra-python` name; what is not installed is left out. `step_parts.py` says how the step is
taken apart. The whole step is also given as a multiple of what no dense network can do without:
the bare products (`bare_products.py`) and the same tables' step without a network.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # nn.LazyAdam warns that it is deprecated

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
import step_report
from bare_products import PRECISIONS, BareProducts, has, precisions_of, why_not
from mindspore import Parameter, Tensor, nn
from peer_process import WORKERS, Peer, installed
from step_parts import (
    GivenRows,
    TableTimes,
    alternate,
    dense_runs,
    table_run,
    timed,
)
from wide_deep_nets import (
    DIM,
    SHAPES,
    VanillaWideDeep,
    WideDeep,
    hash_lookups,
    layers_of_shape,
)

import mindspore_rec as mr
from mindspore_rec import tables_of
from mindspore_rec.optim import LazyAdam

PEERS = ("mindspore", *WORKERS)
BATCHES = 4
WARMUP = 4


@dataclasses.dataclass(frozen=True)
class Data:
    """Batches of one shape.

    Args:
        shape: name of the shape.
        batch: samples in a batch.
        rows: ids in a table.
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
        """The ids as 63-bit keys."""
        return [Tensor.from_numpy(bench_common.spread_keys(r)) for r in self.ranks]

    @functools.cached_property
    def others(self) -> tuple[Tensor, Tensor]:
        """Numbers and labels."""
        return Tensor(self.dense), Tensor(self.label)


def adam(parameters: Sequence[Parameter]) -> LazyAdam:
    """Return the optimizer of all our runs."""
    return LazyAdam(list(parameters), learning_rate=1e-3)


def step_of(net: nn.Cell, optimizer: nn.Cell, ids: Sequence[Tensor], data: Data) -> Any:
    """Return the run of a network's whole step."""
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    return timed(lambda i: step(ids[i % BATCHES], *data.others).asnumpy())


def vanilla_run(data: Data) -> Callable[[int], float]:
    """Return the run of MindSpore's own tables."""
    net = VanillaWideDeep(data.rows, data.shape)
    optimizer = nn.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    optimizer.target = "CPU"
    return step_of(net, optimizer, [Tensor(r.astype(np.int32)) for r in data.ranks], data)


def part_runs(data: Data, precision: str) -> dict[str, Callable[[int], float]]:
    """Return the runs of the dense network with given rows."""
    rng = np.random.default_rng(1)
    fields = SHAPES[data.shape][0]
    deep = rng.random((data.batch, fields, DIM)) * 0.02 - 0.01
    wide = rng.random((data.batch, 1)) * 0.02 - 0.01

    def make() -> nn.Cell:
        given = GivenRows("deep", deep), GivenRows("wide", wide)
        return WideDeep(*given, data.shape, precision)

    runs = dense_runs(make, adam, (data.keys[0], *data.others))
    return {name: timed(run) for name, run in runs.items()}


class Case:
    """The runs of one shape and batch size.

    Args:
        data: the batches.
        precisions: of the dense network.
        peers: interpreter of each peer.
        stack: closes tables and processes.
    """

    def __init__(
        self, data: Data, precisions: list[str], peers: dict[str, str], stack: ExitStack
    ) -> None:
        self.data, self.precisions, self.stack = data, precisions, stack
        self.runs: dict[str, Callable[[int], float]] = {}
        self.inside: dict[str, TableTimes] = {}
        self.products: dict[str, BareProducts] = {}
        self.about: dict[str, dict[str, str]] = {}
        for precision in precisions:
            self._add_ours(precision)
        deep, wide = hash_lookups(data.rows, f"{data.shape}.{data.batch}.alone")
        self._close_later(deep, wide)
        optimizer = adam([*deep.trainable_params(), *wide.trainable_params()])
        self.runs["tables"] = timed(table_run((deep, wide), optimizer, data.keys))
        for name, python in peers.items():
            if name == "mindspore":
                self.runs[name] = vanilla_run(data)
            else:
                for precision in precisions:
                    self._add_peer(name, python, precision)

    def _add_ours(self, precision: str) -> None:
        data = self.data
        deep, wide = hash_lookups(data.rows, f"{data.shape}.{data.batch}.{precision}")
        self._close_later(deep, wide)
        net = WideDeep(deep, wide, data.shape, precision)
        run = step_of(net, adam(net.trainable_params()), data.keys, data)
        self.runs[f"ours {precision}"] = run
        self.inside[precision] = TableTimes(tables_of(net))
        for name, part in part_runs(data, precision).items():
            self.runs[f"{name} {precision}"] = part
        if has(precision):
            layers = layers_of_shape(data.shape)
            bare = BareProducts(layers, data.batch, precision, mr.get_num_threads())
            self.products[precision] = bare
            self.runs[f"products {precision}"] = lambda _: bare.run()

    def _add_peer(self, name: str, python: str, precision: str) -> None:
        data = self.data
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
        peer = Peer(name, python, settings, arrays)
        self.stack.callback(peer.close)
        self.about[f"{name} {precision}"] = peer.about
        self.runs[f"{name} {precision}"] = lambda i: peer.step(i % BATCHES)

    def _close_later(self, *lookups: nn.Cell) -> None:
        for lookup in lookups:
            self.stack.callback(lookup.embedding_table.close)

    def measure(self, rounds: int) -> dict[str, dict[str, Any]]:
        """Return the figures by precision."""
        title = f"{self.data.shape}, batch {self.data.batch}"
        alternate(self.runs, 0, WARMUP, f"{title}, warm-up")
        for inside in self.inside.values():
            inside.start()
        times = alternate(self.runs, rounds, 0, title)
        return {p: self._figures(times, p, rounds) for p in self.precisions}

    def _figures(self, times: dict[str, np.ndarray], precision: str, rounds: int) -> dict[str, Any]:
        own = {"tables", "mindspore"} & times.keys()
        found = {name: times[name] for name in own}
        for name, spent in times.items():
            if name.endswith(f" {precision}"):
                found[name.removesuffix(f" {precision}")] = spent
        inside = self.inside[precision].seconds_per_step(rounds)
        figures = step_report.figures(found, inside, self.data.batch)
        if precision in self.products:
            figures["bare_products"] = self.products[precision].figures()
        figures["about"] = {k: v for k, v in self.about.items() if k.endswith(precision)}
        return figures


def measure(shape: str, batch: int, args: Any, peers: dict[str, str]) -> dict[str, Any]:
    """Return the figures of a shape and a batch size, by precision; print them."""
    with ExitStack() as stack:
        case = Case(Data.draw(shape, batch, args), args.precision, peers, stack)
        found = case.measure(args.rounds)
    for precision, figures in found.items():
        step_report.show(f"{shape}, batch {batch}, {precision}", figures)
    return found


def peers_of(text: str) -> list[str]:
    """Return the peers that a list with commas names.

    Raises:
        ValueError: one that is not of `PEERS`.
    """
    names = list(dict.fromkeys(each for each in text.split(",") if each))
    if not set(names) <= set(PEERS):
        raise ValueError(f"peers must be of {', '.join(PEERS)}, got {text!r}")
    return names


def present(args: Any) -> dict[str, str]:
    """Return the interpreter of each peer that is installed; say which are not."""
    found = {}
    for name in args.peers:
        python = "" if name == "mindspore" else str(getattr(args, f"{name}_python"))
        missing = "" if name == "mindspore" else installed(name, python)
        if missing:
            print(f"{name} is left out: {missing}")
        else:
            found[name] = python
    return found


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, nargs="+", default=[4096], help="samples in a step")
    parser.add_argument("--rows", type=int, default=4_000_000, help="keys in each table before")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the ids")
    parser.add_argument("--rounds", type=int, default=20, help="counted steps of each kind")
    parser.add_argument("--shape", choices=SHAPES, help="only this one")
    parser.add_argument(
        "--precision", type=precisions_of, default="float32",
        help=f"of the dense network: of {', '.join(PRECISIONS)}, with commas",
    )  # fmt: skip
    parser.add_argument(
        "--peers", type=peers_of, default="mindspore", help=f"of {', '.join(PEERS)}, with commas"
    )
    for name in WORKERS:
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
        for shape in ([args.shape] if args.shape else SHAPES)
    }
    bench_common.save(args.json, {"rows": args.rows, "about": about, "shapes": results})


if __name__ == "__main__":
    main()
