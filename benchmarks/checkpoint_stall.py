# SPDX-License-Identifier: Apache-2.0
"""The cost of checkpoints: the pause for a delta, the background writing, the samples per second.

    PYTHONPATH=. python benchmarks/checkpoint_stall.py --directory DISK --json output/stall.json

The same training runs alternately with and without a `RecCheckpoint`. The `RecCheckpoint` writes
one delta per second, and merges full checkpoints in the background. For comparison, the benchmark
also times `save_checkpoint`, which stops training.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.train import Callback, RunContext
from tqdm import tqdm

import mindspore_rec as mr


class Network(nn.Cell):
    """An MLP over the 26 rows and 13 numbers of a sample."""

    def __init__(self, dim: int, hidden: list[int]) -> None:
        super().__init__()
        self.embedding = mr.HashEmbeddingLookup(dim, ms.int64, name="bench.stall")
        self.mlp = mr.nn.MLP(26 * dim + 13, hidden, out_features=1)

    def construct(self, ids: ms.Tensor, dense: ms.Tensor) -> ms.Tensor:
        """Return the logits."""
        rows = self.embedding(ids)
        return self.mlp(ops.concat((rows.reshape((rows.shape[0], -1)), dense), 1))


def batches(seconds: float, batch: int, rows: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """For a number of seconds, yield whole batches with skewed keys."""
    rng = np.random.default_rng(seed)
    law = bench_common.Zipf(rows, 1.05, rng)
    pool = [
        (
            bench_common.spread_keys(law.draw((batch, 26))),
            rng.random((batch, 13), np.float32),
            (rng.random((batch, 1)) < 0.3).astype(np.float32),
        )
        for _ in range(50)
    ]
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        yield pool[number % len(pool)]
        number += 1


class Pace(Callback):
    """Callback that measures the steps per second, including the time of callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self._begins: list[float] = []

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Record the time."""
        self._begins.append(time.monotonic())

    @property
    def steps_per_second(self) -> float:
        """Return the steps per second, not counting the last step; 0 if there is only one step."""
        if len(self._begins) < 2:
            return 0.0
        return (len(self._begins) - 1) / (self._begins[-1] - self._begins[0])


def fill(net: Network, rows: int, dim: int) -> None:
    """Insert all keys into the table, as a long training does."""
    table = net.embedding.embedding_table
    for first in tqdm(range(0, rows, 1 << 18), desc="fill", disable=None, leave=False):
        keys = bench_common.spread_keys(np.arange(first, min(rows, first + (1 << 18))))
        table.write_rows(keys, np.zeros((len(keys), dim), np.float32))


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--directory", type=Path, help="for the checkpoints; default: a new one")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the table")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--seconds", type=float, default=15.0, help="of a training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delta-seconds", type=float, default=1.0)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    root = Path(tempfile.mkdtemp(dir=options.directory))
    net = Network(options.dim, options.hidden)
    optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    model = mr.RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    fill(net, options.rows, options.dim)

    def train(*callbacks: Any) -> float:
        data = batches(options.seconds, options.batch, options.rows, options.seed)
        pace = Pace()
        model.online_train(data, [pace, *callbacks], progress=False)
        return options.batch * pace.steps_per_second

    train()  # compiles
    begin = time.perf_counter()
    mr.save_checkpoint(model, root / "whole")
    whole = time.perf_counter() - begin
    shutil.rmtree(root / "whole")
    checkpoint = mr.RecCheckpoint(
        root / "run",
        every_seconds=options.seconds / 2,
        delta_every_seconds=options.delta_seconds,
        keep=1,
        data_starts_over=True,
    )
    alone, beside = [], []
    for _ in tqdm(range(options.rounds), desc="rounds", disable=None):
        alone.append(train())
        beside.append(train(checkpoint))
    shutil.rmtree(root)
    deltas = [save for save in checkpoint.saves if save.kind == "delta"]
    merges = [save for save in checkpoint.saves[1:] if save.kind == "full"]
    figures: dict[str, Any] = {
        "samples_per_second": {"alone": alone, "with_checkpoints": beside},
        "ratio": float(np.median(np.array(beside) / np.array(alone))),
        "save_checkpoint_seconds": whole,
        "stall_ms": [1e3 * save.stall_seconds for save in deltas],
        "write_ms": [1e3 * save.write_seconds for save in deltas],
        "delta_rows": [save.rows for save in deltas],
        "delta_bytes": [save.bytes for save in deltas],
        "merge_seconds": [save.write_seconds for save in merges],
    }
    stall = np.array(figures["stall_ms"])
    print(f"samples/s alone {np.median(alone):,.0f}, with checkpoints {np.median(beside):,.0f}: ")
    print(f"ratio {figures['ratio']:.2f}")
    print(
        f"{len(deltas)} deltas of {np.median(figures['delta_rows']):,.0f} rows and "
        f"{np.median(figures['delta_bytes']) / 1e6:.1f} MB: stall {np.median(stall):.1f} ms, "
        f"greatest {stall.max():.1f} ms; written beside in {np.median(figures['write_ms']):.0f} ms"
    )
    if merges:
        print(f"full checkpoints merged beside in {np.median(figures['merge_seconds']):.1f} s")
    print(f"save_checkpoint, waiting for all of it: {whole:.1f} s")
    bench_common.save(options.json, figures)


if __name__ == "__main__":
    main()
