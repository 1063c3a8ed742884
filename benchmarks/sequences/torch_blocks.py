# SPDX-License-Identifier: Apache-2.0
"""Histories in PyTorch over padded blocks: DIN's pool, and the blocks of BST, SASRec and HSTU.

The modules are written from the papers' formulas with PyTorch's own layers, and begin with the
current weights of our cells. A history is a block `[B, L, dim]` with its length; our cells read
values and offsets without padding. `torch_nets.py` makes the networks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.torch_twins import _linear, _parameter, _perceptron

__all__ = ["GatedBlock", "LastOutput", "Pool", "State", "TransformerBlock"]


class _Dice(nn.Module):
    """Dice, normalized over the rows that a mask selects."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.alpha = _parameter(ours.alpha)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """x [B, L, width], mask bool [B, L] -> [B, L, width]."""
        rows = x[mask]
        variance, mean = torch.var_mean(rows, 0, correction=0)
        p = torch.sigmoid((x - mean) * torch.rsqrt(variance + 1e-8))
        return p * x + (1 - p) * self.alpha * x


class Pool(nn.Module):
    """The target attention of DIN."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.weight, self.bias = _parameter(ours.weight), _parameter(ours.bias)
        self.first = _Dice(ours.activation)
        self.second, self.third = _linear(ours.layers[0].layers[0]), _Dice(ours.layers[1])
        self.last = _linear(ours.layers[2].layers[0])

    def forward(
        self, candidate: torch.Tensor, events: torch.Tensor, lengths: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return the events' weighted sum, and the candidate times this sum, both [B, dim].

        The arguments are candidate [B, dim], events [B, L, dim] and lengths [B].
        """
        mask = torch.arange(events.shape[1]) < lengths[:, None]
        c = candidate[:, None].expand_as(events)
        joined = torch.cat((c, events, c - events, c * events), -1)
        x = self.first(functional.linear(joined, self.weight, self.bias), mask)
        scores = self.last(self.third(self.second(x), mask)) * mask[..., None]
        pooled = (scores * events).sum(1)
        return [pooled, candidate * pooled]


class LastOutput(nn.Module):
    """The transformer blocks of BST: the candidate is the last value of its history."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([TransformerBlock(each) for each in net.blocks])

    def forward(
        self, candidate: torch.Tensor, events: torch.Tensor, lengths: torch.Tensor
    ) -> list[torch.Tensor]:
        """candidate [B, dim], events [B, L, dim], lengths [B] -> the output for the candidate."""
        rows = torch.arange(len(lengths))
        x = functional.pad(events, (0, 0, 0, 1))
        x = x.index_put((rows, lengths), candidate)
        for block in self.blocks:
            x = block(x, lengths + 1)
        return [x[rows, lengths]]


class TransformerBlock(nn.Module):
    """A transformer block that normalizes its inputs."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.positions = _parameter(ours.positions) if ours.has_positions else None
        self.norm, self.hidden_norm = _norm(ours.norm), _norm(ours.hidden_norm)
        self.qkv, self.projection = (
            _linear(each.layers[0]) for each in (ours.qkv, ours.projection)
        )
        self.mlp = _perceptron(ours.mlp)
        self.heads = int(ours.attention.form.asnumpy()[0])

    def forward(
        self, x: torch.Tensor, lengths: torch.Tensor, times: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [B, L, dim], lengths [B] -> [B, L, dim]; times are not read."""
        if self.positions is not None:
            place = lengths[:, None] - 1 - torch.arange(x.shape[1])
            x = x + self.positions[place.clamp(0, len(self.positions) - 1)]
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.hidden_norm(x))


class GatedBlock(nn.Module):
    """A block of HSTU: attention without softmax; biases depend on distance and time."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.norm, self.attention_norm = _norm(ours.norm), _norm(ours.attention_norm)
        self.projection, self.output = (
            _linear(each.layers[0]) for each in (ours.projection, ours.output)
        )
        self.by_distance = _parameter(ours.by_distance)
        self.by_time = _parameter(ours.by_time) if ours.time_buckets else None
        self.heads = int(ours.attention.form.asnumpy()[0])

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """x [B, L, dim], lengths [B], times int64 [B, L] -> [B, L, dim]."""
        q, k, v, u = functional.silu(self.projection(self.norm(x))).chunk(4, -1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        places = torch.arange(x.shape[1])
        distance = (places[:, None] - places).clamp(0, len(self.by_distance) - 1)
        scores = q @ k.transpose(2, 3) + self.by_distance[distance]
        if self.by_time is not None:
            apart = (times[:, :, None] - times[:, None]).clamp(min=0)
            bucket = torch.frexp(apart.double())[1].clamp(max=len(self.by_time) - 1)  # bits
            scores = scores + self.by_time[bucket.long()][:, None]
        weights = functional.silu(scores).tril() / len(self.by_distance)
        attended = (weights @ v).transpose(1, 2).flatten(2)
        return x + self.output(self.attention_norm(attended) * u)


class State(nn.Module):
    """The state of SASRec and HSTU: the last block's normalized output for the newest event."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        blocks = [each.block for each in ours.blocks]
        kind = GatedBlock if hasattr(blocks[0], "by_distance") else TransformerBlock
        self.blocks = nn.ModuleList([kind(each) for each in blocks])
        self.norm = _norm(ours.norm)
        self.scale = ours.scale

    def forward(
        self, events: torch.Tensor, lengths: torch.Tensor, times: torch.Tensor
    ) -> torch.Tensor:
        """events [B, L, dim], lengths [B], times int64 [B, L] -> [B, dim], 0 for no event."""
        x = events * self.scale
        for block in self.blocks:
            x = block(x, lengths, times)
        newest = x[torch.arange(len(lengths)), (lengths - 1).clamp(min=0)]
        return self.norm(newest) * (lengths > 0)[:, None]


def _norm(ours: Any) -> nn.LayerNorm:
    made = nn.LayerNorm(ours.gamma.shape[0], eps=1e-5)
    made.weight, made.bias = _parameter(ours.gamma), _parameter(ours.beta)
    return made
