# SPDX-License-Identifier: Apache-2.0
"""The networks of `shapes.py` in plain PyTorch; their tables are on the GPU, too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gpu.shapes import BATCHES, DIM, Batches, Shape
from torch import nn

__all__ = ["about", "figures", "prepare"]

_RATE = 1e-3
_DEVICE = "cuda:0"


def prepare(seed: int) -> None:
    """Switch TF32 off, so that float32 products are exact float32, and seed the weights."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(seed)


def about() -> dict[str, str]:
    """Return the versions and the GPU's name."""
    return {
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "card": torch.cuda.get_device_name(_DEVICE),
    }


class Network(nn.Module):
    """The network above the embeddings.

    Args:
        shape: the network.
        bfloat16: True if products are in bfloat16, by autocast.
    """

    def __init__(self, shape: Shape, bfloat16: bool) -> None:
        super().__init__()
        self.shape, self.bfloat16 = shape, bfloat16
        if shape.bottom:
            self.bottom = _perceptron((shape.numbers, *shape.bottom, DIM))
            pairs = torch.tril_indices(shape.fields + 1, shape.fields + 1, -1)
            self.register_buffer("pairs", pairs[0] * (shape.fields + 1) + pairs[1])
        if shape.cross:
            self.vectors = nn.Parameter(torch.randn(shape.numbers, DIM) * 0.01)
            widths = [nn.Linear(shape.width, shape.width) for _ in range(shape.cross)]
            self.maps = nn.ModuleList(widths)
            self.deep = _perceptron((shape.width, *shape.hidden))
            self.last = nn.Linear(shape.width + shape.hidden[-1], 1)
        else:
            self.deep = _perceptron((shape.width, *shape.hidden))
            self.last = nn.Linear(shape.hidden[-1], 1)

    def forward(self, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return the logit, float32 [B, 1], of `rows` [B, F, D] and `numbers` [B, N]."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.bfloat16):
            return self._logit(rows, numbers).float()

    def _logit(self, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if self.shape.bottom:
            first = self.bottom(numbers)
            vectors = torch.cat((first[:, None].to(rows.dtype), rows), 1)
            dots = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
            return self.last(self.deep(torch.cat((first, dots[:, self.pairs]), 1)))
        if self.shape.cross:
            of_numbers = (numbers[:, :, None] * self.vectors).flatten(1)
            x = torch.cat((rows.flatten(1), of_numbers), 1)
            crossed = x
            for linear in self.maps:
                crossed = x * linear(crossed) + crossed
            return self.last(torch.cat((crossed, self.deep(x)), 1))
        return self.last(self.deep(torch.cat((rows.flatten(1), numbers), 1)))


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, units in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(width, units), nn.ReLU()]
    return nn.Sequential(*layers)


class Training:
    """The parts of a training: tables, network, optimizers and batches.

    Args:
        shape: the network.
        rows: number of ids per table.
        precision: 'float32' or 'bfloat16', for the products.
        sparse: True if the tables' gradients have only the batch's rows, and SparseAdam updates
            these rows. If `sparse` is False, Adam updates all rows in each step.
    """

    def __init__(self, shape: Shape, rows: int, precision: str, sparse: bool) -> None:
        self.shape = shape
        with torch.device(_DEVICE):
            self.deep = nn.Embedding(rows, DIM, sparse=sparse)
            tables = [self.deep.weight]
            nn.init.uniform_(self.deep.weight, -0.01, 0.01)
            if shape.wide:
                self.wide = nn.EmbeddingBag(rows, 1, mode="sum", sparse=sparse)
                nn.init.zeros_(self.wide.weight)
                tables.append(self.wide.weight)
            self.network: Any = Network(shape, precision == "bfloat16")
        dense = list(self.network.parameters())
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Adam(dense if sparse else [*dense, *tables], lr=_RATE, fused=True)
        ]
        if sparse:
            self.optimizers.append(torch.optim.SparseAdam(tables, lr=_RATE))

    def compile(self) -> None:
        """Compile the network above the embeddings."""
        self.network = torch.compile(self.network, dynamic=False)

    def step(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Run a step on a batch that is on the GPU or in pinned memory; return the loss."""
        ids, numbers, labels = (each.to(_DEVICE, non_blocking=True) for each in batch)
        logit = self.network(self.deep(ids), numbers)
        if self.shape.wide:
            logit = logit + self.wide(ids)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, labels)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def tensors(batches: Batches, on_gpu: bool) -> list[tuple[torch.Tensor, ...]]:
    """Return the batches, on the GPU or in pinned host memory."""

    def placed(array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if on_gpu:
            return tensor.to(_DEVICE)
        return tensor.pin_memory() if tensor.numel() else tensor

    return [
        (placed(ranks), placed(batches.numbers.copy()), placed(batches.labels.copy()))
        for ranks in batches.ranks
    ]


def median_seconds(
    training: Training, batches: Batches, on_gpu: bool, options: Any
) -> dict[str, float]:
    """Return the last loss, and the median seconds of single steps and of steps in blocks.

    For single steps, the host waits for the GPU after each step. For blocks, the host waits after
    each `options.block` steps.
    """
    inputs = tensors(batches, on_gpu)
    for k in range(options.warmup):
        loss = training.step(inputs[k % BATCHES])
    result = {}
    for name, block in (("alone", 1), ("in_blocks", options.block)):
        spent = []
        for _ in range(options.steps if block == 1 else options.blocks):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for k in range(block):
                loss = training.step(inputs[k % BATCHES])
            torch.cuda.synchronize()
            spent.append((time.perf_counter() - begin) / block)
        result[name] = statistics.median(spent)
    result["loss"] = float(loss)
    return result


def figures(shape: Shape, precision: str, batch: int, options: Any) -> list[dict[str, Any]]:
    """Return a network's samples/s in each mode.

    Eager steps are measured with sparse and with dense gradients of the tables. Eager steps with
    pinned batches are measured only with the faster kind of gradients (sparse or dense). If `batch`
    is in `options.compiled_batch`, compiled steps are measured, too.
    """
    batches = Batches.draw(shape, batch, options.rows, options.zipf, options.seed)
    results: list[dict[str, Any]] = []

    def add(training: Training, sparse: bool, way: str, on_gpu: bool) -> None:
        seconds = median_seconds(training, batches, on_gpu, options)
        results.append(
            {
                "tables": "sparse" if sparse else "dense",
                "way": way,
                "batches": "gpu" if on_gpu else "pinned",
                "samples_per_s": batch / seconds["in_blocks"],
                "samples_per_s_alone": batch / seconds["alone"],
                "step_ms": seconds["in_blocks"] * 1e3,
                "loss": seconds["loss"],
            }
        )

    trainings = {}
    for sparse in (True, False):
        trainings[sparse] = Training(shape, options.rows, precision, sparse)
        add(trainings[sparse], sparse, "eager", True)
    best = results[0]["step_ms"] < results[1]["step_ms"]
    training = trainings[best]
    add(training, best, "eager", False)
    if batch in options.compiled_batch:
        torch.compiler.reset()  # forget earlier networks, which count against a limit
        begin = time.perf_counter()
        training.compile()
        try:
            training.step(tensors(batches, True)[0])
        except Exception as error:  # the compiler can raise any error
            return [*results, {"way": "compiled", "failed": f"{type(error).__name__}: {error}"}]
        torch.cuda.synchronize()
        results.append({"way": "compiling", "seconds": time.perf_counter() - begin})
        add(training, best, "compiled", True)
        add(training, best, "compiled", False)
    return results
