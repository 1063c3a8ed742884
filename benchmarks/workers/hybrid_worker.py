# SPDX-License-Identifier: Apache-2.0
"""A process that trains on command, alone or as one of several workers (`hybrid_parallel.py`).

    python benchmarks/workers/hybrid_worker.py SOCKET NAME MODEL BATCH ROWS SEED

The process connects to the socket, sends a description of itself, and runs steps on command.
If several processes have the same NAME, process i draws its batches with the seed SEED + i.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")

import json
import socket
import sys
import time
from typing import Any

import mindspore as ms
from hybrid_nets import Batches, fill, make_network, train_step

import mindspore_rec as mr
from mindspore_rec import tables_of
from mindspore_rec.parallel import worker_group

# Bytes that workers exchange before a step of `RecModel.train`.
_AGREEMENT = bytes(40)


class Trainer:
    """Runs steps, and records the durations of the steps and their exchanges."""

    def __init__(self, model: str, batch: int, rows: int, seed: int) -> None:
        self.group = worker_group()
        self.channel = self.group.channel("step")
        self.net = make_network(model)
        data = Batches.draw(batch, rows, seed)
        self.distinct = data.distinct()
        self.inputs = data.tensors()
        fill(self.net, rows)
        self.step = train_step(self.net)
        self.batch = batch
        self.steps = 0

    def about(self) -> dict[str, Any]:
        """Return the rank, the host and other facts about this process."""
        return {
            "rank": self.group.rank,
            "size": self.group.size,
            "host": self.group.host,
            "threads": mr.get_num_threads(),
            "cores": sorted(os.sched_getaffinity(0)),
            "distinct_keys": self.distinct,
            "rows": {table.name: int(table.stats()["rows"]) for table in tables_of(self.net)},
            "dense_floats": sum(p.size for p in self.net.trainable_params()),
        }

    def run(self, steps: int) -> dict[str, list[float]]:
        """Run steps; return each step's loss and seconds, and its exchange's seconds, calls and
        bytes."""
        losses, seconds, exchange, calls, sent = [], [], [], [], []
        self.group.barrier()
        for _ in range(steps):
            before = self.channel.statistics()
            start = time.perf_counter()
            self.group.all_gather(_AGREEMENT)
            agreed = time.perf_counter()
            self.group.begin_step(self.steps, [self.batch] * self.group.size)
            loss = self.step(*self.inputs[self.steps % len(self.inputs)]).asnumpy()
            end = time.perf_counter()
            after = self.channel.statistics()
            losses.append(float(loss))
            seconds.append(end - start)
            of_channel = after["seconds"] - before["seconds"]
            exchange.append(of_channel + (agreed - start if self.group.size > 1 else 0.0))
            calls.append(after["calls"] - before["calls"])
            sent.append(after["bytes_sent"] - before["bytes_sent"])
            self.steps += 1
        return {
            "losses": losses,
            "seconds": seconds,
            "exchange": exchange,
            "calls": calls,
            "bytes": sent,
        }

    def move(self, parts: list[int], rounds: int) -> list[float]:
        """Send messages of the requested sizes to the other workers; return the seconds of each
        round.

        A barrier before each exchange makes the workers begin together, so that only the transfer
        takes time.
        """
        seconds = []
        for _ in range(rounds):
            spent = 0.0
            for part in parts:
                data = [bytes(part)] * self.group.size
                self.channel.barrier()
                before = self.channel.statistics()["seconds"]
                self.channel.all_to_all(data)
                spent += self.channel.statistics()["seconds"] - before
            seconds.append(spent)
        return seconds


def serve(trainer: Trainer, name: str, path: str) -> None:
    """Execute commands from a socket until it is closed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        lines = connection.makefile("rw", encoding="utf-8")
        print(json.dumps({"name": name, **trainer.about()}), file=lines, flush=True)
        for line in lines:
            command, *arguments = json.loads(line)
            print(json.dumps(getattr(trainer, command)(*arguments)), file=lines, flush=True)


def main() -> None:
    """Run the worker."""
    path, name, model, batch, rows, seed = sys.argv[1:]
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    own = int(seed) + worker_group().rank
    serve(Trainer(model, int(batch), int(rows), own), name, path)


if __name__ == "__main__":
    main()
