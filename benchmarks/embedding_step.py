# SPDX-License-Identifier: Apache-2.0
"""The cost of one training step of one embedding table, inside the MindSpore graph.

One step looks up batch x fields ids, computes the rows' gradients, sums the gradients by key, and
runs one LazyAdam update. The table's cost is the step's time minus the time of the same graph with
an input tensor in place of the table's rows. For comparison, the benchmark also measures vanilla
MindSpore (`nn.EmbeddingLookup(sparse=True, target="CPU")` with `nn.LazyAdam` on the CPU target,
static ids), and the machine's lower bound (the memory accesses alone). If `--value-dtype` or
`--state-dtype` is not float32, steps of our table alternate with steps of a float32 table. The
script prints our table's times divided by the float32 table's times. With `--output-dtype
bfloat16`, the graph reads our table's rows as bfloat16, and the float32 table's rows as float32.
With bfloat16 output, all graphs end in a fused layer, even graphs without a table. The fused layer
reads float32 and bfloat16, whereas MindSpore's own CPU kernels do not read bfloat16. With bfloat16
output, the script does not measure MindSpore's own lookup. With bfloat16 output, the script also
prints our table's step times divided by the float32 table's step times. Each round runs the
steps in a new random order, because a step's time depends on the caches and allocators that the
previous step left. Only the rounds with MindSpore's own lookup have a fixed order.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GLOG_v", "3")  # nn.LazyAdam warns that it is deprecated

import bench_common
import mindspore as ms
import numpy as np
from bench_common import alternate, timed
from mindspore import Parameter, Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec.optim import LazyAdam


class Head(nn.Cell):
    """A cheap loss over rows; every row has a different gradient."""

    def __init__(self, fields: int, dim: int) -> None:
        super().__init__()
        rng = np.random.default_rng(1)
        weight = rng.standard_normal((fields * dim, 1)).astype(np.float32)
        self.weight = Parameter(Tensor(weight), name="head.weight")
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, rows: Tensor, label: Tensor) -> Tensor:
        """rows [B, F, D], label [B] -> loss."""
        logit = ops.matmul(rows.reshape((-1, self.weight.shape[0])), self.weight)
        return self.loss(logit.reshape((-1,)), label)


class FusedHead(nn.Cell):
    """`Head` with a fused layer, for float32 or bfloat16 rows."""

    def __init__(self, fields: int, dim: int) -> None:
        super().__init__()
        self.layer = mr.nn.MLP(fields * dim, (), out_features=1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, rows: Tensor, label: Tensor) -> Tensor:
        """rows [B, F, D], label [B] -> loss."""
        return self.loss(self.layer(rows).reshape((-1,)), label)


def new_head(args: Any) -> nn.Cell:
    """Return the final layers of this run's graphs."""
    kind = Head if args.output_dtype == "float32" else FusedHead
    return kind(args.fields, args.dim)


class Table(nn.Cell):
    """Lookup, then head."""

    def __init__(self, lookup: nn.Cell, head: nn.Cell) -> None:
        super().__init__()
        self.lookup = lookup
        self.head = head

    def construct(self, ids: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], label [B] -> loss."""
        return self.head(self.lookup(ids), label)


class TrainStep(nn.Cell):
    """Loss, gradients and one optimizer step."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.optimizer = optimizer
        self.grad = ms.value_and_grad(net, None, optimizer.parameters)

    def construct(self, x: Tensor, label: Tensor) -> Tensor:
        """One step."""
        loss, grads = self.grad(x, label)
        return ops.depend(loss, self.optimizer(grads))


class PlainStep(nn.Cell):
    """A graph whose input is the tensor `rows`, and which returns the gradient of `rows`."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.grad = ms.value_and_grad(net, 0, optimizer.parameters)

    def construct(self, rows: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Run one step, and return the loss and the gradient of `rows`."""
        loss, (row_grad, grads) = self.grad(rows, label)
        return ops.depend(loss, self.optimizer(grads)), row_grad


def vanilla_step(rows: int, dim: int, fields: int) -> TrainStep:
    """Return the step of MindSpore's own sparse lookup and optimizer."""
    lookup = nn.EmbeddingLookup(rows, dim, param_init="zeros", target="CPU", sparse=True)
    net = Table(lookup, Head(fields, dim))
    optimizer = nn.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    optimizer.target = "CPU"
    return TrainStep(net, optimizer).set_train()


def floor(batches: list[np.ndarray], rows: int, dim: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of a step's memory accesses alone."""
    native = bench_common.compile_native("floor.cc")
    table = np.zeros((rows, 3 * dim), np.float32)
    index = np.zeros(rows * 2, np.uint64)  # 16 bytes a row
    n = batches[0].size
    out = np.empty((n, dim), np.float32)
    scratch = np.empty((n, dim), np.float32)
    grad = np.random.default_rng(2).standard_normal((n, dim)).astype(np.float32)
    prepared = []
    for batch in batches:
        distinct, inverse = np.unique(batch, return_inverse=True)
        distinct = np.random.default_rng(3).permutation(rows)[: len(distinct)].astype(np.int64)
        prepared.append((distinct, inverse.astype(np.int32)))
    threads = mr.get_num_threads()

    def pointer(array: np.ndarray) -> Any:
        return array.ctypes.data_as(ctypes.c_void_p)

    size = ctypes.c_size_t

    def step(i: int, probe: int) -> None:
        distinct, inverse = prepared[i % len(prepared)]
        native.floor_gather(
            pointer(table), size(3 * dim), dim, pointer(distinct), size(len(distinct)),
            pointer(inverse), size(n), pointer(index), size(len(index) // 8), probe,
            pointer(scratch), pointer(out), threads,
        )  # fmt: skip
        native.floor_update(
            pointer(table), size(3 * dim), dim, pointer(distinct), size(len(distinct)),
            pointer(grad), ctypes.c_float(1e-3), threads,
        )  # fmt: skip

    runs = {"floor": lambda i: step(i, 0), "floor_with_probe": lambda i: step(i, 1)}
    times = alternate(timed(runs), rounds, 3, "floor")
    return {name: float(np.median(spent)) for name, spent in times.items()}


DTYPES = {"float32": ms.float32, "bfloat16": ms.bfloat16, "float16": ms.float16}


def our_step(
    args: Any, name: str, value_dtype: str, state_dtype: str, output_dtype: str
) -> tuple[TrainStep, Any]:
    """Make one of our tables with `args.rows` rows; return its training step and the table."""
    config = mr.TableConfig(
        args.dim,
        name=name,
        value_dtype=DTYPES[value_dtype],
        state_dtype=DTYPES[state_dtype],
        rounding=args.rounding,
    )
    lookup = mr.HashEmbeddingLookup(config=config, output_dtype=DTYPES[output_dtype])
    net = Table(lookup, new_head(args))
    step = TrainStep(net, LazyAdam(net.trainable_params(), learning_rate=1e-3)).set_train()
    table = net.lookup.embedding_table
    touch_memory(args.rows * (20 + 12 * args.dim) * 3 // 2)
    for start in range(0, args.rows, 500_000):
        numbers = np.arange(start, min(start + 500_000, args.rows))
        table.insert_rows(bench_common.spread_keys(numbers))
    return step, table


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=4096, help="samples in a step")
    parser.add_argument("--fields", type=int, default=39, help="ids in a sample")
    parser.add_argument("--dim", type=int, default=16, help="floats in a row")
    parser.add_argument("--rows", type=int, default=4_000_000, help="keys in the table before")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the ids")
    parser.add_argument("--rounds", type=int, default=40, help="counted steps of each kind")
    parser.add_argument("--new", type=float, default=0.1, help="share of new keys, second run")
    parser.add_argument("--value-dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--state-dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--output-dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of our rows in the graph; bfloat16 with --value-dtype bfloat16",
    )
    parser.add_argument("--rounding", choices=("stochastic", "nearest"), default="stochastic")
    parser.add_argument("--no-vanilla", action="store_true", help="leave MindSpore's own path out")
    args = parser.parse_args()
    if args.output_dtype != "float32" and args.value_dtype != args.output_dtype:
        parser.error("--output-dtype bfloat16 is for --value-dtype bfloat16")
    args.no_vanilla |= args.output_dtype != "float32"

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    rng = np.random.default_rng(args.seed)
    shape = (args.batch, args.fields)
    zipf = bench_common.Zipf(args.rows, args.zipf, rng)
    # A fixed offset per field shifts the ranks, so that the frequent keys differ between fields.
    offsets = (np.arange(args.fields) * (args.rows // args.fields)).astype(np.int64)
    ranks = [(zipf.draw(shape) + offsets) % args.rows for _ in range(8)]
    keys = [bench_common.spread_keys(r) for r in ranks]
    label = Tensor((rng.random(args.batch) < 0.3).astype(np.float32))
    distinct = float(np.mean([len(np.unique(k)) for k in keys]))

    dtypes = (args.value_dtype, args.state_dtype, args.output_dtype)
    ours, table = our_step(args, "embedding_step", *dtypes)
    steps, tables = {"ours": ours}, [table]
    if dtypes != ("float32",) * 3:
        steps["float32"], wide = our_step(args, "embedding_step_float32", *("float32",) * 3)
        tables.append(wide)
    stats = table.stats()
    per_row = (stats["index_bytes"] + stats["metadata_bytes"]) / stats["rows"]

    rows_in = Tensor(rng.standard_normal((*shape, args.dim)).astype(np.float32))
    # A graph without a table reads float32 rows. If our table's output has a different type, a
    # second graph without a table reads rows of this type.
    plains = {"plain": plain_run(args, rows_in, label)}
    if args.output_dtype != "float32":
        plains["plain_narrow"] = plain_run(args, ops.cast(rows_in, ms.bfloat16), label)
    batches = [Tensor.from_numpy(k) for k in keys]

    fresh = iter(range(args.rows, 1 << 62, args.batch * args.fields))
    mask = rng.random(shape) < args.new

    def with_new(i: int) -> Tensor:
        numbers = np.arange(args.batch * args.fields).reshape(shape) + next(fresh)
        return Tensor.from_numpy(np.where(mask, bench_common.spread_keys(numbers), keys[i % 8]))

    new_batches = [with_new(i) for i in range(args.rounds + 8)]
    runs: dict[str, Any] = {
        **plains,
        **runs_of(steps, lambda i: batches[i % 8], label),
    }
    counted = [each.op_times() for each in tables]
    times = alternate(timed(runs), args.rounds, 8, "ours", mixed=True)
    inside, *inside_wide = [
        operator_times(before, each.op_times())
        for before, each in zip(counted, tables, strict=True)
    ]
    before = table.op_times()
    runs.update(runs_of(steps, lambda i: new_batches[i], label))
    new_times = alternate(timed(runs), args.rounds, 8, "ours, new keys", mixed=True)
    inside_new = operator_times(before, table.op_times())
    # Measure again with new keys that reuse the memory of erased rows. The difference between the
    # measurements with and without reused rows is the cost of fresh memory from the system.
    for batch in new_batches:
        for each in tables:
            each.erase(np.ascontiguousarray(batch.asnumpy()[mask]))
    reused_batches = [with_new(i) for i in range(args.rounds + 8)]
    runs.update(runs_of(steps, lambda i: reused_batches[i], label))
    before = table.op_times()
    reused_times = alternate(timed(runs), args.rounds, 8, "ours, new keys, used rows", mixed=True)
    inside_reused = operator_times(before, table.op_times())
    if not args.no_vanilla:
        vanilla = vanilla_step(args.rows, args.dim, args.fields)
        static = [Tensor(r.astype(np.int32)) for r in ranks]
        runs.update(runs_of({"ours": ours}, lambda i: batches[i % 8], label))
        runs["vanilla"] = lambda i: vanilla(static[i % 8], label).asnumpy()
        beside = alternate(timed(runs), args.rounds, 8, "ours and vanilla")
    bare = floor(ranks, args.rows, args.dim, args.rounds)

    def cost(spent: dict[str, np.ndarray], name: str) -> float:
        without = "plain_narrow" if name == "ours" and "plain_narrow" in spent else "plain"
        return float(np.median(spent[name]) - np.median(spent[without])) * 1e3

    def whole(spent: dict[str, np.ndarray], name: str) -> float:
        return float(np.median(spent[name])) * 1e3

    figures: dict[str, Any] = {
        "lookups": args.batch * args.fields,
        "distinct": round(distinct),
        "dim": args.dim,
        "rows": args.rows,
        "zipf": args.zipf,
        "threads": mr.get_num_threads(),
        "ours_ms": cost(times, "ours"),
        "ours_new_keys_ms": cost(new_times, "ours"),
        "ours_new_keys_used_rows_ms": cost(reused_times, "ours"),
        "plain_graph_ms": float(np.median(times["plain"])) * 1e3,
        "floor_ms": bare["floor"] * 1e3,
        "floor_with_probe_ms": bare["floor_with_probe"] * 1e3,
        "index_and_metadata_bytes_per_row": per_row,
        "load_factor": stats["load_factor"],
    }
    figures["row_bytes"] = table.row_sizes().block
    if "float32" in steps:
        figures["value_dtype"], figures["state_dtype"] = table.row_dtypes
        figures["row_bytes_to_float32"] = figures["row_bytes"] / tables[1].row_sizes().block
        for name, spent in (("", times), ("_new_keys", new_times), ("_used_rows", reused_times)):
            figures[f"float32{name}_ms"] = cost(spent, "float32")
            figures[f"to_float32{name}"] = cost(spent, "ours") / cost(spent, "float32")
            if args.output_dtype != "float32":
                figures[f"whole_step{name}_ms"] = whole(spent, "ours")
                figures[f"whole_step_float32{name}_ms"] = whole(spent, "float32")
                ratio = whole(spent, "ours") / whole(spent, "float32")
                figures[f"whole_step_to_float32{name}"] = ratio
    figures["new_keys_ratio"] = figures["ours_new_keys_ms"] / figures["ours_ms"]
    figures["new_keys_used_rows_ratio"] = figures["ours_new_keys_used_rows_ms"] / figures["ours_ms"]
    if not args.no_vanilla:
        figures["vanilla_ms"] = cost(beside, "vanilla")
        figures["ours_beside_vanilla_ms"] = cost(beside, "ours")
        figures["times_vanilla"] = figures["vanilla_ms"] / figures["ours_beside_vanilla_ms"]
    figures["inside_operators_ms"] = sum(inside.values())
    figures["inside_operators_new_keys_ms"] = sum(inside_new.values())
    figures["inside_operators_new_keys_used_rows_ms"] = sum(inside_reused.values())
    figures.update({f"inside_{name}_ms": value for name, value in inside.items()})
    for each in inside_wide:
        figures.update({f"float32_inside_{name}_ms": value for name, value in each.items()})
    for name, value in figures.items():
        shown = value if isinstance(value, str) else f"{value:,}"
        print(f"{name:34s} {f'{value:,.3f}' if isinstance(value, float) else shown}")
    bench_common.save(args.json, figures)


def plain_run(args: Any, rows: Tensor, label: Tensor) -> Callable[[int], Any]:
    """Return a function that runs a step of a graph whose input is the tensor `rows`."""
    head = new_head(args)
    step = PlainStep(head, LazyAdam(head.trainable_params(), learning_rate=1e-3)).set_train()
    return lambda _: step(rows, label)[0].asnumpy()


def runs_of(
    steps: dict[str, TrainStep], batch: Callable[[int], Tensor], label: Tensor
) -> dict[str, Callable[[int], Any]]:
    """Return a dict: name of a step -> function that takes a batch's number and runs the step."""

    def run_of(step: TrainStep) -> Callable[[int], Any]:
        return lambda i: step(batch(i), label).asnumpy()

    return {name: run_of(step) for name, step in steps.items()}


def touch_memory(size: int) -> None:
    """Allocate, touch and free `size` bytes of memory.

    On a virtual machine, if the host has not assigned a page yet, the first access to the page
    costs 20 times as much as an ordinary page fault. If the memory were not touched before, the
    measured time of the table's growth would include the first accesses to pages.
    """
    np.ones(size, np.uint8)


def operator_times(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """Return the mean milliseconds per call of each table operator between two counter readings."""
    spent = {}
    for name, (calls, nanoseconds) in after.items():
        new = calls - before[name][0]
        if new > 0:
            spent[name] = (nanoseconds - before[name][1]) / new / 1e6
    return spent


if __name__ == "__main__":
    main()
