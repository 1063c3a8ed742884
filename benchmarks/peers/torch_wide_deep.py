# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep in PyTorch, as a worker: SparseAdam for sparse embeddings, fused Adam for the rest.

The dense network runs compiled if `torch.compile` succeeds within a minute, and if the compiled
network is faster than the original.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from serve import Work, serve
from torch import nn

COMPILE_SECONDS = 60
RATE = 1e-3


class Network(nn.Module):
    """The network above the embeddings."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        width = work.fields * work.dim + work.columns
        layers: list[nn.Module] = []
        for units in work.hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))
        self.bfloat16 = work.precision == "bfloat16"

    def forward(
        self, deep: torch.Tensor, wide: torch.Tensor, dense: torch.Tensor, label: torch.Tensor
    ) -> torch.Tensor:
        """deep [B, F, D], wide [B, 1], dense [B, N], label [B, 1] -> loss."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            logit = self.layers(torch.cat((deep.flatten(1), dense), 1))
        return nn.functional.binary_cross_entropy_with_logits(logit.float() + wide, label)


class Training:
    """Tables, network and optimizers."""

    def __init__(self, work: Work) -> None:
        self.deep = nn.Embedding(work.rows, work.dim, sparse=True)
        self.wide = nn.EmbeddingBag(work.rows, 1, mode="sum", sparse=True)
        nn.init.zeros_(self.wide.weight)
        self.network: Any = Network(work)
        tables = [self.deep.weight, self.wide.weight]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.SparseAdam(tables, lr=RATE),
            torch.optim.Adam(self.network.parameters(), lr=RATE, fused=True),
        ]
        self.ids = [torch.from_numpy(each) for each in work.ranks]
        self.dense = torch.from_numpy(work.dense)
        self.label = torch.from_numpy(work.label)

    def step(self, k: int) -> float:
        """Run a step on batch k; return the loss."""
        ids = self.ids[k]
        loss = self.network(self.deep(ids), self.wide(ids), self.dense, self.label)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def seconds(self, steps: int = 3) -> float:
        """Return the shortest time of a few steps, in seconds."""
        times = []
        for k in range(steps):
            begin = time.perf_counter()
            self.step(k % len(self.ids))
            times.append(time.perf_counter() - begin)
        return min(times)


@contextlib.contextmanager
def limited(seconds: int) -> Any:
    """Raise TimeoutError if the block takes longer than `seconds`."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def compiled_if_faster(training: Training) -> str:
    """Compile the network if compilation makes it faster; return a description."""
    eager, plain = training.network, training.seconds()
    try:
        with limited(COMPILE_SECONDS):
            training.network = torch.compile(eager)
            training.step(0)
    except Exception as error:  # the compiler can raise any error
        training.network = eager
        return f"eager: torch.compile failed, {type(error).__name__}"
    if training.seconds() < plain:
        return "compiled"
    training.network = eager
    return "eager: compiled is not faster"


def make(work: Work) -> tuple[dict[str, str], Callable[[int], float]]:
    """Return versions and step."""
    torch.set_num_threads(work.threads)
    torch.manual_seed(0)
    training = Training(work)
    return {"torch": torch.__version__, "network": compiled_if_faster(training)}, training.step


if __name__ == "__main__":
    serve(make)
