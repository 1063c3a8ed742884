# SPDX-License-Identifier: Apache-2.0
"""Speed of training from a Kafka topic, compared with training from arrays in memory.

    PYTHONPATH=. python benchmarks/online_throughput.py --json output/online_throughput.json

The same network trains on the same rows (26 keys, 13 numbers, a label) in two ways, in turn:
`RecModel.train` on a list of batches, and `RecModel.online_train` on a topic. The broker also runs
on this machine.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from mindspore import nn, ops
from tqdm import tqdm

import mindspore_rec as mr
from examples.online_learning.kafka.broker import Broker
from mindspore_rec.stream import DataReceiver, DataSender, StopWhen, StreamingDataset

KEYS = 1_000_000


class Network(nn.Cell):
    """An MLP over the 26 rows (16 floats each) and 13 numbers of a sample."""

    def __init__(self, hidden: list[int]) -> None:
        super().__init__()
        self.embedding = mr.HashEmbeddingLookup(16, ms.int64, name="bench.online")
        self.mlp = mr.nn.MLP(26 * 16 + 13, hidden, out_features=1)

    def construct(self, ids: ms.Tensor, dense: ms.Tensor) -> ms.Tensor:
        """Return the logits."""
        rows = self.embedding(ids).reshape((-1, 26 * 16))
        return self.mlp(ops.concat((rows, dense), 1))


def batches_of(count: int, batch: int, seed: int) -> list[tuple[np.ndarray, ...]]:
    """Return whole batches with skewed keys."""
    rng = np.random.default_rng(seed)
    law = bench_common.Zipf(KEYS, 1.05, rng)
    return [
        (
            bench_common.spread_keys(law.draw((batch, 26))),
            rng.random((batch, 13), np.float32),
            (rng.random((batch, 1)) < 0.3).astype(np.float32),
        )
        for _ in tqdm(range(count), desc="rows", leave=False, disable=None)
    ]


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=40, help="of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    data = batches_of(options.steps, options.batch, options.seed)
    net = Network(options.hidden)
    optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    model = mr.RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        broker = stack.enter_context(Broker(directory))
        with DataSender(broker.address) as sender:
            for ids, dense, label in data:
                sender.send({"ids": ids, "dense": dense, "label": label})

        def offline() -> Any:
            return model.train(1, data, progress=False)

        def kafka() -> Any:
            receiver = DataReceiver(
                broker.address, batch_size=options.batch, stop=StopWhen(batches=options.steps)
            )
            with StreamingDataset(receiver) as stream:
                return model.online_train(stream, progress=False)

        offline()  # compiles the graph, and makes the rows
        speed: dict[str, list[float]] = {"offline": [], "kafka": []}
        for _ in range(options.rounds):
            for name, run in (("offline", offline), ("kafka", kafka)):
                summary = run()
                speed[name].append(summary.samples / summary.seconds)
                print(f"{name}: {speed[name][-1]:,.0f} samples/s", flush=True)
    best = {name: round(float(np.median(values))) for name, values in speed.items()}
    figures = {**best, "ratio": round(best["kafka"] / best["offline"], 3)}
    print(figures)
    bench_common.save(options.json, {**vars(options), "json": None, **figures})


if __name__ == "__main__":
    main()
