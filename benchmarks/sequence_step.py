# SPDX-License-Identifier: Apache-2.0
"""Training steps of the cells over histories, compared with the same networks in PyTorch.

A step is a forward pass, a backward pass (including the gradient of the input values) and Adam's
update. The gradient of the output is drawn at random before the step, so that no loss is part of
the time. PyTorch runs in a process of another interpreter (`--torch-python`), on the same batches
and with the same number of threads. Our steps and PyTorch's steps alternate. PyTorch runs each
network padded and packed, eagerly and (without `--eager`) compiled, and the fastest form counts.
The second part measures the time per value, with and without a history of 5,000 values in the
batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from peer_process import Peer, installed

import mindspore_rec as mr
from mindspore_rec.nn import HSTU, HistoryTransformer, TargetAttention
from mindspore_rec.optim import LazyAdam

NETS = ("din", "transformer", "hstu")
BATCHES = 4
WARMUP = 4
TIME_BUCKETS = 32


class Data:
    """Batches of one case.

    Args:
        dim: width of a value.
        lengths: int64 [K, B], lengths of histories.
        longest: greatest length that a history may have.
        rng: random generator.
    """

    def __init__(
        self, dim: int, lengths: np.ndarray, longest: int, rng: np.random.Generator
    ) -> None:
        zeros = np.zeros((len(lengths), 1), np.int64)
        self.offsets = np.concatenate((zeros, np.cumsum(lengths, 1)), 1)
        self.dim, self.longest, self.lists = dim, longest, lengths.shape[1]
        most = max(int(self.offsets[:, -1].max()), self.lists)
        self.values = rng.standard_normal((most, dim)).astype(np.float32)
        self.of_output = rng.standard_normal((most, dim)).astype(np.float32)
        self.candidate = rng.standard_normal((self.lists, dim)).astype(np.float32)
        self.times = np.cumsum(rng.integers(0, 5000, most))
        self.is_static = len(set(self.offsets[:, -1].tolist())) == 1

    def batch(self, k: int) -> tuple[Tensor, ...]:
        """Return batch k: values, offsets, times, candidates, and gradients of the output."""
        n = int(self.offsets[k, -1])
        arrays = (
            self.values[:n],
            self.offsets[k],
            self.times[:n],
            self.candidate,
            self.of_output[:n],
        )
        return tuple(Tensor(np.ascontiguousarray(each)) for each in arrays)


def drawn_lengths(kind: str, longest: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Return lengths, int64 [BATCHES, batch]: always `longest`, or random from 0 to `longest`."""
    if kind == "fixed":
        return np.full((BATCHES, batch), longest, np.int64)
    return rng.integers(0, longest + 1, (BATCHES, batch))


class OutputGradient(nn.Cell):
    """Returns one element of `output`; the backward pass returns `gradient` for `output`."""

    def construct(self, output: Tensor, gradient: Tensor) -> Tensor:
        """Return the first number of the output."""
        return output[0, 0]

    def bprop(self, output: Tensor, gradient: Tensor, out: Any, dout: Any) -> Any:
        """Return the given gradient."""
        return gradient, ops.zeros_like(gradient)


class Network(nn.Cell):
    """A cell over histories. The backward pass starts from a random gradient of the output."""

    def __init__(self, net: str, dim: int, longest: int) -> None:
        super().__init__()
        self.net = net
        self.end = OutputGradient()
        self.cell: nn.Cell
        if net == "din":
            self.cell = TargetAttention(dim)
        elif net == "transformer":
            self.cell = HistoryTransformer(dim, positions=longest)
        else:
            self.cell = HSTU(dim, longest, time_buckets=TIME_BUCKETS)

    def construct(
        self, values: Tensor, offsets: Tensor, times: Tensor, candidate: Tensor, gradient: Tensor
    ) -> Tensor:
        """Return one number of the output."""
        if self.net == "din":
            output = self.cell(candidate, values, offsets)
        elif self.net == "transformer":
            output = self.cell(values, offsets)
        else:
            output = self.cell(values, offsets, times)
        return self.end(output, gradient)


class Step(nn.Cell):
    """A training step that also returns the gradient with respect to the input `values`."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        weights = net.trainable_params()
        self.optimizer = LazyAdam(weights, learning_rate=1e-3)
        self.gradient = ms.value_and_grad(net, 0, self.optimizer.parameters)

    def construct(
        self, values: Tensor, offsets: Tensor, times: Tensor, candidate: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return one element of the output, and the gradient with respect to `values`."""
        number, gradients = self.gradient(values, offsets, times, candidate, gradient)
        return ops.depend(number, self.optimizer(gradients[1])), gradients[0]


def our_run(net: str, data: Data) -> Callable[[int], float]:
    """Return a function that takes a step's number, runs our step and returns the seconds."""
    batches = [data.batch(k) for k in range(len(data.offsets))]
    if net == "din":  # an output for each history
        batches = [(*each[:4], Tensor(data.of_output[: data.lists])) for each in batches]
    step = Step(Network(net, data.dim, data.longest).set_train()).set_train()
    if not data.is_static:
        rows = None if net != "din" else data.lists
        shapes: list[Any] = [[None, data.dim], [data.lists + 1], [None]]
        shapes += [[data.lists, data.dim], [rows, data.dim]]
        dtypes = (ms.float32, ms.int64, ms.int64, ms.float32, ms.float32)
        step.set_inputs(*(Tensor(shape=s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)))

    def run(i: int) -> None:
        number, gradient = step(*batches[i % len(batches)])
        if not np.isfinite(number.asnumpy()):
            raise ArithmeticError("the output is not finite")
        gradient.asnumpy()

    return bench_common.seconds_of(run)


def torch_peer(net: str, data: Data, args: Any) -> Peer:
    """Return the peer that trains the same network on the same batches."""
    settings = {
        "net": net, "dim": data.dim, "longest": data.longest, "threads": mr.get_num_threads(),
        "compiles": not args.eager,
    }  # fmt: skip
    names = ("offsets", "values", "candidate", "of_output", "times")
    arrays = {name: getattr(data, name) for name in names}
    return Peer("torch", args.torch_python, settings, arrays, "torch_sequence.py")


def measure(net: str, data: Data, args: Any, beside_torch: bool) -> dict[str, Any]:
    """Return the ms of our step and of PyTorch's step, and the median ratio of paired steps."""
    with ExitStack() as stack:
        runs = {"ours": our_run(net, data)}
        about: dict[str, str] = {}
        if beside_torch:
            peer = torch_peer(net, data, args)
            stack.callback(peer.close)
            runs["torch"] = lambda i: peer.step(i % BATCHES)
            about = peer.about
        times = bench_common.alternate(runs, args.rounds, WARMUP, net)
    figures: dict[str, Any] = {
        f"{name}_ms": float(np.median(spent)) * 1e3 for name, spent in times.items()
    }
    figures["values"] = float(data.offsets[:, -1].mean())
    if beside_torch:
        figures["torch_by_ours"] = float(np.median(times["torch"] / times["ours"]))
        figures["torch"] = about
    return figures


def long_history(args: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Return the microseconds per value of DIN, with and without one long history."""
    usual = np.full((1, args.batch), args.lengths[0], np.int64)
    long = usual.copy()
    long[0, args.batch // 2] = args.long
    runs = {
        name: our_run("din", Data(args.dim, lengths, args.long, rng))
        for name, lengths in (("usual", usual), ("long", long))
    }
    times = bench_common.alternate(runs, args.rounds, WARMUP, "one long history")
    values = {"usual": usual.sum(), "long": long.sum()}
    figures = {
        name: float(np.median(spent)) * 1e6 / int(values[name]) for name, spent in times.items()
    }
    return {**figures, "long_by_usual": figures["long"] / figures["usual"]}


def main() -> None:
    """Measure and print."""
    parser = bench_common.parser(str(__doc__))
    parser.add_argument("--nets", nargs="+", choices=NETS, default=NETS, help="networks")
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 200], help="greatest")
    parser.add_argument("--batch", type=int, default=1024, help="histories in a batch")
    parser.add_argument("--dim", type=int, default=32, help="width of a value")
    parser.add_argument("--rounds", type=int, default=20, help="counted steps of each kind")
    parser.add_argument("--long", type=int, default=5000, help="length of the one long history")
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--eager", action="store_true", help="no compiled forms of PyTorch")
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(args.seed)
    missing = installed("torch", args.torch_python)
    if missing:
        print(f"torch is left out: {missing}")
    machine = bench_common.machine()
    print(f"{machine['cpu']}, {mr.get_num_threads()} threads, batch {args.batch}, dim {args.dim}")
    results: dict[str, Any] = {}
    for net in args.nets:
        for longest in args.lengths:
            for kind in ("drawn", "fixed"):
                lengths = drawn_lengths(kind, longest, args.batch, rng)
                figures = measure(net, Data(args.dim, lengths, longest, rng), args, not missing)
                results[f"{net}, {longest}, {kind}"] = figures
                line = f"{net:12} up to {longest:4} {kind:6} {figures['ours_ms']:8.1f} ms"
                if not missing:
                    line += f", torch {figures['torch_ms']:8.1f} ms, {figures['torch_by_ours']:.2f}"
                    line += f" of ours ({figures['torch']['form']})"
                print(line, flush=True)
    long = long_history(args, rng)
    print(
        f"din, microseconds per value: {long['usual']:.3f} with {args.lengths[0]} values in each "
        f"history, {long['long']:.3f} if one has {args.long}"
    )
    bench_common.save(
        args.json,
        {
            "threads": mr.get_num_threads(),
            "batch": args.batch,
            "dim": args.dim,
            "steps": results,
            "microseconds_per_value": long,
        },
    )


if __name__ == "__main__":
    main()
