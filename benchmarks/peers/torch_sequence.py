# SPDX-License-Identifier: Apache-2.0
"""Worker process for cells over histories in PyTorch, in the fastest of several forms.

Each network has two forms. The padded form pads all histories to one length before the first layer.
The packed form pads values only for the attention, and pads nothing for DIN. SASRec's and HSTU's
blocks need no mask for the padding, because the padding comes after the values and the attention is
causal. DIN masks the padding. Each form runs eagerly. On request, each form also runs compiled,
unless `torch.compile` fails or takes more than a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from serve import serve
from torch import nn
from torch.nn import functional
from torch_wide_deep import limited

COMPILE_SECONDS = 60
RATE = 1e-3


@dataclass(frozen=True)
class Work:
    """Arguments of the worker.

    Args:
        net: 'din', 'transformer' or 'hstu'.
        dim: width of a value.
        longest: greatest length of a history, which sets the number of HSTU's biases and SASRec's
            positions.
        threads: number of computing threads.
        compiles: True if forms compiled by `torch.compile` are tried in addition to eager forms.
        offsets: int64 [K, B + 1], the offsets of each of the K batches.
        values: float32 [N, dim], where N is the size of the largest batch; a batch of n values uses
            the first n rows.
        candidate: float32 [B, dim].
        of_output: float32 [N, dim], gradients of the output.
        times: int64 [N].
    """

    net: str
    dim: int
    longest: int
    threads: int
    compiles: bool
    offsets: np.ndarray
    values: np.ndarray
    candidate: np.ndarray
    of_output: np.ndarray
    times: np.ndarray


class Batch:
    """A batch in padded and in packed form."""

    def __init__(self, work: Work, offsets: np.ndarray) -> None:
        lengths = np.diff(offsets)
        lists, longest, count = len(lengths), max(int(lengths.max()), 1), int(offsets[-1])
        self.lists, self.longest = lists, longest
        list_of = np.repeat(np.arange(lists), lengths)
        at = list_of * longest + np.arange(count) - offsets[:-1][list_of]
        self.at = torch.from_numpy(at)
        self.list_of = torch.from_numpy(list_of)
        self.values = torch.from_numpy(work.values[:count])
        rows = lists if work.net == "din" else count
        self.of_output = torch.from_numpy(work.of_output[:rows])
        self.candidate = torch.from_numpy(work.candidate)
        mask = np.zeros(lists * longest, np.float32)
        mask[at] = 1
        self.mask = torch.from_numpy(mask.reshape(lists, longest))
        times = np.zeros(lists * longest, np.int64)
        times[at] = work.times[:count]
        self.bucket = torch.zeros(0)
        if work.net == "hstu":  # computed here, outside of the timed step
            times = times.reshape(lists, longest)
            between = np.maximum(times[:, :, None] - times[:, None], 0).astype(np.float64)
            bucket = np.clip(np.frexp(between)[1], 0, 31).astype(np.int32)
            self.bucket = torch.from_numpy(bucket)

    def pad(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`, of shape [N, width], padded to [B, L, width]."""
        padded = x.new_zeros(self.lists * self.longest, x.shape[-1])
        return padded.index_copy(0, self.at, x).view(self.lists, self.longest, -1)

    def unpad(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`, of shape [B, L, width], without the padding, as [N, width]."""
        return x.reshape(-1, x.shape[-1]).index_select(0, self.at)


class Dice(nn.Module):
    """Dice over all rows, or over the rows that a mask selects."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """x [..., width], mask [..., 1] -> [..., width]."""
        if mask is None:
            variance, mean = torch.var_mean(x, 0, correction=0)
        else:
            count = mask.sum()
            mean = (x * mask).sum((0, 1)) / count
            variance = ((x - mean) ** 2 * mask).sum((0, 1)) / count
        with torch.no_grad():
            self.mean.lerp_(mean, 0.1)
            self.variance.lerp_(variance, 0.1)
        p = torch.sigmoid((x - mean) * torch.rsqrt(variance + 1e-8))
        return x * (self.alpha + p * (1 - self.alpha))


class Din(nn.Module):
    """Target attention."""

    def __init__(self, work: Work, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.first, self.second = nn.Linear(4 * work.dim, 80), nn.Linear(80, 40)
        self.last, self.dice, self.other_dice = nn.Linear(40, 1), Dice(80), Dice(40)

    def forward(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """values [N, dim] -> output [B, dim]."""
        v = values if self.packed else batch.pad(values)
        mask = None if self.packed else batch.mask.unsqueeze(-1)
        c = batch.candidate
        c = c.index_select(0, batch.list_of) if self.packed else c.unsqueeze(1).expand_as(v)
        x = self.dice(self.first(torch.cat((c, v, c - v, c * v), -1)), mask)
        weights = self.last(self.other_dice(self.second(x), mask))
        if self.packed:
            zeros = torch.zeros_like(batch.candidate)
            pooled = zeros.index_add(0, batch.list_of, weights * v)
        else:
            pooled = torch.einsum("bl,bld->bd", (weights * batch.mask.unsqueeze(-1))[..., 0], v)
        return pooled


class Transformer(nn.Module):
    """A block of SASRec."""

    def __init__(self, work: Work, packed: bool) -> None:
        super().__init__()
        dim = work.dim
        self.packed = packed
        self.positions = nn.Parameter(0.02 * torch.randn(work.longest, dim))
        self.norm, self.hidden_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.projection = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """values [N, dim] -> output [N, dim]."""
        place = batch.mask.sum(1, keepdim=True).long() - 1 - torch.arange(batch.longest)
        place = place.clamp(0)
        if self.packed:
            place = batch.unpad(place.unsqueeze(-1))[:, 0]
        x = values if self.packed else batch.pad(values)
        x = x + functional.embedding(place, self.positions)
        qkv = self.qkv(self.norm(x))
        qkv = batch.pad(qkv) if self.packed else qkv
        q, k, v = (each.unsqueeze(1) for each in qkv.chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0]
        x = x + self.projection(batch.unpad(attended) if self.packed else attended)
        x = x + self.mlp(self.hidden_norm(x))
        return x if self.packed else batch.unpad(x)


class Hstu(nn.Module):
    """A block of HSTU."""

    def __init__(self, work: Work, packed: bool) -> None:
        super().__init__()
        dim, self.packed, self.longest = work.dim, packed, work.longest
        self.by_distance = nn.Parameter(0.02 * torch.randn(work.longest))
        self.by_time = nn.Parameter(0.02 * torch.randn(32))
        self.norm, self.attention_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.projection, self.output = nn.Linear(dim, 4 * dim), nn.Linear(dim, dim)

    def forward(self, values: torch.Tensor, batch: Batch) -> torch.Tensor:
        """values [N, dim] -> output [N, dim]."""
        x = values if self.packed else batch.pad(values)
        projected = functional.silu(self.projection(self.norm(x)))
        blocks = batch.pad(projected) if self.packed else projected
        q, k, v, _ = blocks.chunk(4, -1)
        rows = torch.arange(batch.longest)
        distance = (rows[:, None] - rows).clamp(0)
        by_time = functional.embedding(batch.bucket, self.by_time.unsqueeze(1))[..., 0]
        scores = q @ k.transpose(1, 2) + self.by_distance[distance] + by_time
        weights = functional.silu(scores) / self.longest * (rows[:, None] >= rows)
        attended = weights @ v
        attended = batch.unpad(attended) if self.packed else attended
        gate = projected[..., 3 * values.shape[-1] :]
        x = x + self.output(self.attention_norm(attended) * gate)
        return x if self.packed else batch.unpad(x)


NETS: dict[str, Any] = {"din": Din, "transformer": Transformer, "hstu": Hstu}


class Form:
    """One form of a network, with its optimizer."""

    def __init__(self, work: Work, batches: list[Batch], packed: bool) -> None:
        self.network: Any = NETS[work.net](work, packed)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=RATE, fused=True)
        self.batches = batches

    def step(self, k: int) -> float:
        """Run a step on batch k, with the gradient of `values`; return an element of the output."""
        batch = self.batches[k]
        values = batch.values.detach().requires_grad_()
        output = self.network(values, batch)
        output.backward(batch.of_output)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(output[0, 0].detach())

    def seconds(self) -> float:
        """Run two warm-up steps and six timed steps; return the shortest time of a timed step."""
        times = []
        for k in (0, 1) * 4:
            begin = time.perf_counter()
            self.step(k)
            times.append(time.perf_counter() - begin)
        return min(times[2:])


def make(work: Work) -> tuple[dict[str, str], Callable[[int], float]]:
    """Return a description of the fastest form, and its training step."""
    torch.set_num_threads(work.threads)
    torch.manual_seed(0)
    batches = [Batch(work, offsets) for offsets in work.offsets]
    forms, times, failed = {}, {}, []
    for name in ("padded", "packed"):
        forms[name] = Form(work, batches, name == "packed")
        times[name] = forms[name].seconds()
        if not work.compiles:
            continue
        compiled = Form(work, batches, name == "packed")
        try:
            with limited(COMPILE_SECONDS):
                compiled.network = torch.compile(compiled.network)
                for k in range(len(batches)):
                    compiled.step(k)
        except Exception as error:  # the compiler can raise any error
            failed.append(f"{name}: {type(error).__name__}")
            continue
        forms[f"{name}, compiled"] = compiled
        times[f"{name}, compiled"] = compiled.seconds()
    best = min(times, key=lambda each: times[each])
    seen = ", ".join(f"{name} {spent * 1e3:.0f} ms" for name, spent in times.items())
    about = {"torch": torch.__version__, "form": best, "forms": seen, "failed": "; ".join(failed)}
    return about, forms[best].step


if __name__ == "__main__":
    serve(make, Work)
