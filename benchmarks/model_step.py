# SPDX-License-Identifier: Apache-2.0
"""Training throughput of every model, compared with vanilla MindSpore, and times of a step's parts.

    python benchmarks/model_step.py --batch 4096 16000 --precision float32,bfloat16 --json OUT

Each network has the settings of its model's `criteo_x1.yaml` (MMoE: `best.yaml`, two tasks), with
26 ids and 13 numbers per row. Our network looks up 63-bit keys in one hash table for all fields,
and LazyAdam trains the table. A model with first-order terms has a second hash table for the
weights of these terms. The vanilla network has static ids, MindSpore's own layers in float32
instead of fused layers, `nn.EmbeddingLookup(sparse=True, target="CPU")`, and `nn.LazyAdam` on the
CPU target. All networks train on the same batches in alternating steps. `--precision` sets the
types of the perceptrons' products; in float16 the loss is scaled.

`step_parts.py` describes the parts of the step. The script also divides the time of the whole step
by a lower bound. The lower bound is the time of the bare products (`bare_products.py`) plus the
time of the tables' step without a network.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # nn.LazyAdam warns that it is deprecated

import dataclasses
from contextlib import ExitStack
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
import step_report
from bench_common import seconds_of, timed
from mindspore import Tensor, nn
from model_step_nets import (
    FIELDS,
    MODELS,
    NUMBERS,
    Loss,
    dense_parameters,
    layers_of_model,
    lookups_of,
    network,
    tasks_of,
    to_given,
    to_vanilla,
)
from step_case import Run, StepCase
from step_parts import dense_runs, table_run

from mindspore_rec import tables_of
from mindspore_rec.optim import LazyAdam
from mindspore_rec.train import TrainStep
from models.common.embedding import embedding_parameters
from models.common.optimizer import OptimizerConfig, lazy_adam
from models.common.precision import COMPUTE_DTYPES, check_compute_dtype, loss_scale

BATCHES = 4
WARMUP = 4
RATE = 1e-3


@dataclasses.dataclass(frozen=True)
class Data:
    """Batches of a model.

    Args:
        name: name of the model.
        rows: number of ids in the table.
        ranks: int64 [K, B, F], K batches of ids from 0 to `rows` - 1.
        numbers: float32 [B, N].
        label: float32 [B, T].
    """

    name: str
    rows: int
    ranks: np.ndarray
    numbers: Tensor
    label: Tensor

    @staticmethod
    def draw(name: str, batch: int, args: Any) -> Data:
        """Return batches of Zipf-distributed ids."""
        rng = np.random.default_rng(args.seed)
        zipf = bench_common.Zipf(args.rows // FIELDS, args.zipf, rng)
        offsets = np.arange(FIELDS) * (args.rows // FIELDS)
        ranks = np.stack([zipf.draw((batch, FIELDS)) + offsets for _ in range(BATCHES)])
        numbers = Tensor(rng.random((batch, NUMBERS), np.float32))
        label = Tensor((rng.random((batch, tasks_of(name))) < 0.3).astype(np.float32))
        return Data(name, args.rows, ranks, numbers, label)

    @property
    def batch(self) -> int:
        """Number of samples per batch."""
        return int(self.ranks.shape[1])

    def keys(self) -> list[Tensor]:
        """Return the ids as 63-bit keys."""
        return [Tensor.from_numpy(bench_common.spread_keys(r)) for r in self.ranks]


def with_rows(net: nn.Cell, rows: int, stack: ExitStack) -> nn.Cell:
    """Add a row for every id to the network's tables; return the network. `stack` closes the
    tables.
    """
    for table in tables_of(net):
        stack.callback(table.close)
        table.insert_rows(bench_common.spread_keys(np.arange(rows)))
    return net


def step_run(step: nn.Cell, ids: list[Tensor], data: Data) -> Run:
    """Return a function that runs a whole step."""
    return seconds_of(lambda i: step(ids[i % BATCHES], data.numbers, data.label).asnumpy())


def add_ours(case: StepCase, data: Data, precision: str, stack: ExitStack) -> None:
    """Measure the mindspore_rec network in one precision: the whole step, and the step's parts."""
    title = f"{data.batch}.{precision}"
    net = with_rows(network(data.name, title, precision), data.rows, stack)
    scale = loss_scale(precision)
    constant = OptimizerConfig(learning_rate=RATE)
    optimizer = lazy_adam(constant, embedding_parameters(net), dense_parameters(net), 1, scale)
    step = TrainStep(Loss(net), optimizer, scale).set_train()

    def given() -> nn.Cell:
        part = network(data.name, f"{title}.given", precision)
        to_given(part, data.batch)
        return Loss(part)

    batch = (data.keys()[0], data.numbers, data.label)
    parts = dense_runs(given, lambda p: LazyAdam(list(p), RATE), batch)
    runs = timed(parts)
    case.add_ours(precision, step_run(step, data.keys(), data), tables_of(net), runs)


def add_tables(case: StepCase, data: Data, stack: ExitStack) -> None:
    """Add a measurement of the tables' step without a network."""
    net = with_rows(network(data.name, f"{data.batch}.alone", "float32"), data.rows, stack)
    lookups = [cell for _, cell in lookups_of(net)]
    optimizer = LazyAdam(embedding_parameters(net), RATE)
    case.add("tables", seconds_of(table_run(lookups, optimizer, data.keys())))


def vanilla_run(data: Data) -> Run:
    """Return a function that runs the same network with vanilla lookups and layers."""
    net = network(data.name, f"{data.batch}.vanilla", "float32")
    to_vanilla(net, data.rows)
    optimizer = nn.LazyAdam(net.trainable_params(), learning_rate=RATE)
    optimizer.target = "CPU"
    step = nn.TrainOneStepCell(Loss(net), optimizer).set_train()
    return step_run(step, [Tensor(r.astype(np.int32)) for r in data.ranks], data)


def measure(name: str, batch: int, args: Any) -> dict[str, Any]:
    """Print and return the results of a model with one batch size, for each precision."""
    data = Data.draw(name, batch, args)
    shape = network(name, f"{batch}.shape", "float32")
    layers, fixed = layers_of_model(name, shape)
    for table in tables_of(shape):
        table.close()
    case = StepCase(f"{name}, batch {batch}", batch, layers, fixed)
    with ExitStack() as stack:
        for precision in args.precision:
            add_ours(case, data, precision, stack)
        add_tables(case, data, stack)
        case.add("mindspore", vanilla_run(data))
        return case.measure(args.rounds, WARMUP)


def precisions_of(text: str) -> list[str]:
    """Parse a comma-separated list of types; return the distinct types.

    Raises:
        ValueError: a type is not in `COMPUTE_DTYPES`, or the backend does not support it.
    """
    return [check_compute_dtype(each) for each in dict.fromkeys(text.split(","))]


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--batch", type=int, nargs="+", default=[4096], help="samples in a step")
    parser.add_argument("--rows", type=int, default=2_000_000, help="keys in the table before")
    parser.add_argument("--zipf", type=float, default=1.1, help="exponent of the ids")
    parser.add_argument("--rounds", type=int, default=20, help="counted steps of each kind")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which")
    parser.add_argument(
        "--precision", type=precisions_of, default="float32",
        help=f"of the perceptrons' products: of {', '.join(COMPUTE_DTYPES)}, with commas",
    )  # fmt: skip
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    about = step_report.about()
    results = {
        name: {str(batch): measure(name, batch, args) for batch in args.batch}
        for name in args.models
    }
    step_report.show_summary(results)
    bench_common.save(args.json, {"rows": args.rows, "about": about, "models": results})


if __name__ == "__main__":
    main()
