# SPDX-License-Identifier: Apache-2.0
"""Time the bare matrix products of a network's training step, computed by oneDNN alone.

    python benchmarks/bare_products.py --layers 429-1024-512-256 --batch 4096 16000

A layer with `in` inputs and `out` outputs has three products: forward `Y = X W^T`, the input's
gradient `dX = dY W`, and the weight's gradient `dW = dY^T X`. The copy of oneDNN that MindSpore
ships computes each product. Each product is cut into tasks for `--threads` threads. Each task of Y
or dX computes a slice of rows, and each task of dW computes a tile. The distances between stored
rows are chosen so that rows do not conflict in the cache. For each product, the script tries
several structures on this processor and uses the fastest. The structures differ in rows per slice,
tile size, and layout of the weights (unchanged, or as oneDNN prefers). The result is the time of a
step that only computes these products. Writing weights in oneDNN's layout and rounding to bfloat16
are not counted.

All products of a step are tasks of one queue, without a barrier between products. The rate of one
product is the rate of its tasks, times the number of threads.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import bench_common
import numpy as np
from onednn_ctypes import (
    BFLOAT16,
    FLOAT32,
    Matrix,
    Product,
    instructions,
    version,
)

PRECISIONS = (FLOAT32, BFLOAT16)
KINDS = ("forward", "input gradient", "weight gradient")
SLICES = (128, 256, 512)
TILES = ((128, 1024), (256, 256), (256, 1024), (512, 512), (1024, 512))
TRIALS = 3

Task = Callable[[], None]


def has(precision: str) -> bool:
    """True if the processor can multiply in `precision`, which is one of `PRECISIONS`."""
    if precision != BFLOAT16:
        return precision == FLOAT32
    return bool({"avx512_bf16", "amx_bf16"} & set(instructions()))


def why_not(precision: str) -> str:
    """Return the reason why the processor cannot multiply in a precision, or "" if it can."""
    if has(precision):
        return ""
    return f"{precision}: oneDNN has no such products on a processor with {instructions()}"


def leading_dimension(width: int, precision: str) -> int:
    """Return a row's stride in elements: a multiple of a cache line, but not of 1 KiB."""
    line = 16 if precision == FLOAT32 else 32
    lines = -(-width // line) * line
    return lines + line if lines % (16 * line) == 0 else lines


def random_matrix(rows: int, ld: int, precision: str) -> np.ndarray:
    """Return `rows * ld` random numbers in [-0.5, 0.5), in memory that is aligned to a page."""
    size = 4 if precision == FLOAT32 else 2
    memory = np.empty(rows * ld * size + 4096, np.uint8)
    begin = -memory.ctypes.data % 4096
    made = memory[begin : begin + rows * ld * size]
    some = np.random.default_rng(rows).random(1 << 16, np.float32) - np.float32(0.5)
    if precision == FLOAT32:
        made = made.view(np.float32)
    else:
        some = (some.view(np.uint32) >> 16).astype(np.uint16)
        made = made.view(np.uint16)
    made[:] = np.resize(some, made.shape)
    return made


def pieces(size: int, most: int) -> Iterator[tuple[int, int]]:
    """Divide `size` elements into pieces of up to `most`; yield each piece's start and length."""
    for begin in range(0, size, most):
        yield begin, min(most, size - begin)


class Layer:
    """Memory of one layer: the inputs and outputs of its products.

    Args:
        width, units: width of the inputs, and width of the outputs.
        batch: number of rows.
        precision: one of `PRECISIONS`.
    """

    def __init__(self, width: int, units: int, batch: int, precision: str) -> None:
        self.width, self.units, self.batch, self.precision = width, units, batch, precision
        self.ld_x = leading_dimension(width, precision)
        self.ld_y = leading_dimension(units, precision)
        self.x = random_matrix(batch, self.ld_x, precision)
        self.dy = random_matrix(batch, self.ld_y, precision)
        self.weight = random_matrix(units, self.ld_x, precision)
        self.ld_dx = leading_dimension(width, FLOAT32)
        self.ld_out = leading_dimension(units, FLOAT32)
        self.y = random_matrix(batch, self.ld_out, FLOAT32)
        self.dx = random_matrix(batch, self.ld_dx, FLOAT32)
        self.dw = random_matrix(units, self.ld_dx, FLOAT32)

    @property
    def flop(self) -> float:
        """Number of floating-point operations in one of the three products."""
        return 2.0 * self.batch * self.width * self.units

    def forward(self, rows: int, packs: bool) -> list[Task]:
        """Return the tasks of Y = X W^T."""
        weight = Matrix(self.width, self.units, self.ld_x, transposed=True)
        return self._by_rows(
            rows, packs, weight, (self.x, self.ld_x), (self.y, self.ld_out)
        )  # fmt: skip

    def input_gradient(self, rows: int, packs: bool) -> list[Task]:
        """Return the tasks of dX = dY W."""
        weight = Matrix(self.units, self.width, self.ld_x)
        return self._by_rows(
            rows, packs, weight, (self.dy, self.ld_y), (self.dx, self.ld_dx)
        )  # fmt: skip

    def _by_rows(
        self,
        rows: int,
        packs: bool,
        weight: Matrix,
        source: tuple[np.ndarray, int],
        target: tuple[np.ndarray, int],
    ) -> list[Task]:
        (a, lda), (c, ldc) = source, target
        products: dict[int, Product] = {}
        tasks = []
        factor = self.weight
        for begin, count in pieces(self.batch, rows):
            if count not in products:
                left = Matrix(count, weight.rows, lda)
                result = Matrix(count, weight.columns, ldc)
                products[count] = Product(left, weight, result, self.precision, packs)
                if packs:
                    factor = random_matrix(1, products[count].packed_bytes, BFLOAT16)
                    products[count].pack(self.weight, factor)
            tasks.append(products[count].bind(a[begin * lda :], factor, c[begin * ldc :]))
        return tasks

    def weight_gradient(self, tile: tuple[int, int], rows: int) -> list[Task]:
        """Return the tasks of dW = dY^T X; each task sums one tile over blocks of rows."""
        products: dict[tuple[int, int, int, bool], Product] = {}
        tasks = []
        tiles = itertools.product(pieces(self.units, tile[0]), pieces(self.width, tile[1]))
        for (unit, units), (column, columns) in tiles:
            parts = []
            for begin, count in pieces(self.batch, rows):
                key = (units, columns, count, begin > 0)
                if key not in products:
                    products[key] = Product(
                        Matrix(units, count, self.ld_y, transposed=True),
                        Matrix(count, columns, self.ld_x),
                        Matrix(units, columns, self.ld_dx),
                        self.precision,
                        adds=begin > 0,
                    )
                parts.append(
                    products[key].bind(
                        self.dy[begin * self.ld_y + unit :],
                        self.x[begin * self.ld_x + column :],
                        self.dw[unit * self.ld_dx + column :],
                    )
                )
            tasks.append(parts[0] if len(parts) == 1 else _one_after_the_other(parts))
        return tasks


def _one_after_the_other(parts: list[Task]) -> Task:
    def run() -> None:
        for part in parts:
            part()

    return run


def structures(layer: Layer, kind: str) -> Iterator[tuple[str, Callable[[], list[Task]]]]:
    """Yield the structures to try for a product: a name, and a function that makes the tasks."""
    if kind == "weight gradient":
        tiles = {(min(t[0], layer.units), min(t[1], layer.width)) for t in TILES}
        for tile, rows in itertools.product(sorted(tiles), (256, layer.batch)):
            name = f"tiles {tile[0]} x {tile[1]}, {min(rows, layer.batch)} rows at a time"
            yield name, functools.partial(layer.weight_gradient, tile, rows)
        return
    make = layer.forward if kind == "forward" else layer.input_gradient
    for rows, packs in itertools.product(sorted({min(s, layer.batch) for s in SLICES}), (0, 1)):
        name = f"slices of {rows} rows, weights {'packed' if packs else 'as they are'}"
        yield name, functools.partial(make, rows, bool(packs))


def run_tasks(tasks: Sequence[Task], threads: int, spent: list[float], clock: Any) -> float:
    """Run tasks on several threads; return the seconds.

    Args:
        tasks: tasks in the order in which they start.
        threads: number of threads, including the calling thread.
        spent: list with one element per task; `run_tasks` sets each element to the task's seconds.
        clock: function that returns the time in seconds: `time.perf_counter` or `time.thread_time`.
    """
    numbers = itertools.count()  # its `next` is atomic under Python's lock

    def work() -> None:
        while (i := next(numbers)) < len(tasks):
            begin = clock()
            tasks[i]()
            spent[i] = clock() - begin

    begin = time.perf_counter()
    helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    return time.perf_counter() - begin


def fastest(layer: Layer, kind: str, threads: int) -> tuple[str, list[Task]]:
    """Return the name and the tasks of the structure that costs the least processor time.

    The cost is the tasks' total time divided by `threads`, but at least the time of the longest
    task. If a structure has fewer tasks than threads, the cost includes idle threads.
    """
    best: tuple[float, str, list[Task]] | None = None
    for name, make in structures(layer, kind):
        tasks = make()
        spent = [0.0] * len(tasks)
        least = [float("inf")] * len(tasks)
        for _ in range(TRIALS):
            run_tasks(tasks, threads, spent, time.thread_time)
            least = list(map(min, least, spent))
        cost = max(sum(least) / threads, max(least))
        if best is None or cost < best[0]:
            best = (cost, name, tasks)
    assert best is not None
    return best[1], best[2]


@dataclasses.dataclass
class _Part:
    layer: Layer
    kind: str
    structure: str
    tasks: range


class BareProducts:
    """The products of one step of a network's layers, ready to be timed.

    Args:
        layers: (inputs, outputs) of each layer. Layers with one output are left out. The products
            of layers with one output are reductions; memory limits their speed in any library.
        batch: number of rows.
        precision: one of `PRECISIONS`, which the processor must support.
        threads: number of threads.
        fixed: indices of layers whose inputs need no gradient. Default: none.

    Raises:
        RuntimeError: the processor cannot multiply in this precision.
    """

    def __init__(
        self,
        layers: Sequence[tuple[int, int]],
        batch: int,
        precision: str,
        threads: int,
        fixed: Collection[int] = (),
    ) -> None:
        if not has(precision):
            raise RuntimeError(why_not(precision))
        self.threads = threads
        self._tasks: list[Task] = []
        self._parts: list[_Part] = []
        self._spent: list[list[float]] = []
        made = {k: Layer(i, o, batch, precision) for k, (i, o) in enumerate(layers) if o > 1}
        for kind in KINDS:
            for k, layer in made.items() if kind == "forward" else reversed(made.items()):
                if kind != "input gradient" or k not in fixed:
                    self._add(layer, kind)

    def _add(self, layer: Layer, kind: str) -> None:
        name, tasks = fastest(layer, kind, self.threads)
        begin = len(self._tasks)
        self._tasks += tasks
        self._parts.append(_Part(layer, kind, name, range(begin, len(self._tasks))))

    @property
    def flop(self) -> float:
        """Number of floating-point operations in all products."""
        return sum(part.layer.flop for part in self._parts)

    def run(self) -> float:
        """Compute all products once; return the seconds."""
        spent = [0.0] * len(self._tasks)
        seconds = run_tasks(self._tasks, self.threads, spent, time.perf_counter)
        self._spent.append(spent)
        return seconds

    def figures(self) -> list[dict[str, Any]]:
        """Return each product's shape, structure and median GFLOP/s over the runs so far."""
        if not self._spent:
            return []
        products = []
        for part in self._parts:
            runs = [sum(spent[i] for i in part.tasks) / self.threads for spent in self._spent]
            seconds = float(np.median(runs))
            products.append(
                {
                    "layer": [part.layer.width, part.layer.units],
                    "product": part.kind,
                    "structure": part.structure,
                    "ms": round(1e3 * seconds, 3),
                    "gflop_per_s": _three_digits(part.layer.flop / seconds / 1e9),
                }
            )
        return products


def _three_digits(figure: float) -> float:
    """Return a figure with three significant digits, so that small figures do not become 0."""
    return float(f"{figure:.3g}")


def layers_of(text: str) -> list[tuple[int, int]]:
    """Parse widths such as '429-1024-512'; return each layer's (inputs, outputs).

    Raises:
        ValueError: the text has fewer than two widths, or a width is not a positive number.
    """
    widths = [int(each) for each in text.split("-") if each.isdigit()]
    if len(widths) < 2 or "-".join(map(str, widths)) != text or min(widths) < 1:
        raise ValueError(f"layers must be at least two widths such as 429-1024-512, got {text!r}")
    return list(itertools.pairwise(widths))


def precisions_of(text: str) -> list[str]:
    """Return the distinct precisions in a comma-separated list.

    Raises:
        ValueError: the list has a name that is not in `PRECISIONS`.
    """
    names = list(dict.fromkeys(text.split(",")))
    if not set(names) <= set(PRECISIONS):
        raise ValueError(f"precision must be of {', '.join(PRECISIONS)}, got {text!r}")
    return names


def show(products: BareProducts, seconds: float) -> None:
    """Print one line per product, and one line for all products."""
    for each in products.figures():
        shape = f"{each['layer'][0]} -> {each['layer'][1]}"
        print(
            f"| {shape} | {each['product']} | {each['ms']:.2f} | {each['gflop_per_s']:,.0f} | "
            f"{each['structure']} |"
        )
    rate = products.flop / seconds / 1e9
    print(f"| all | | {1e3 * seconds:.2f} | {rate:,.0f} | |", flush=True)


def measure(args: Any, batch: int, precision: str) -> dict[str, Any]:
    """Return the results for a batch size in a precision."""
    products = BareProducts(args.layers, batch, precision, args.threads)
    seconds = np.median([products.run() for _ in range(args.rounds)])
    print(f"\nbatch {batch}, {precision}, {args.threads} threads, median of {args.rounds}\n")
    print("| layer | product | ms | GFLOP/s | structure |\n|---|---|---|---|---|")
    show(products, float(seconds))
    return {
        "batch": batch,
        "precision": precision,
        "ms": round(1e3 * float(seconds), 3),
        "gflop_per_s": _three_digits(products.flop / float(seconds) / 1e9),
        "products": products.figures(),
    }


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument(
        "--layers", type=layers_of, default="429-1024-512-256", help="widths, joined by '-'"
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[4096], help="rows of a step")
    parser.add_argument(
        "--precision", type=precisions_of, default=",".join(PRECISIONS), help="with commas"
    )
    parser.add_argument("--threads", type=int, default=2, help="that compute")
    parser.add_argument("--rounds", type=int, default=10, help="counted runs of all products")
    args = parser.parse_args()
    print(f"oneDNN {version()}, {bench_common.machine()['cpu']}, {' '.join(instructions())}")
    results = []
    for precision in args.precision:
        if not has(precision):
            print(why_not(precision))
            continue
        results += [measure(args, batch, precision) for batch in args.batch]
    bench_common.save(
        args.json,
        {"onednn": version(), "instructions": instructions(), "threads": args.threads,
         "layers": args.layers, "results": results},
    )  # fmt: skip


if __name__ == "__main__":
    main()
