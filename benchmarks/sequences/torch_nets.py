# SPDX-License-Identifier: Apache-2.0
"""DIN and BST in PyTorch over padded blocks, with the current weights of our networks.

The networks are written from the papers' formulas with PyTorch's own layers. A history is a block
`[B, L, dim]` with a mask; our networks read values and offsets without padding. `history_twins.py`
trains the networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.torch_twins import _linear, _parameter, _perceptron

__all__ = ["Adam", "Twin"]


class Adam(torch.optim.Optimizer):
    """Adam in the form of `LazyAdam` and `SparseAdam`: epsilon is not divided by the correction.

    `torch.optim.Adam` adds epsilon to the corrected root. For gradients near epsilon, such as 1e-7,
    steps then differ, and the losses differ by a few thousandths after 100 steps.

    Args:
        parameters: dense parameters.
        rate: the learning rate.
    """

    def __init__(self, parameters: list[nn.Parameter], rate: float) -> None:
        super().__init__(parameters, {"lr": rate})
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters."""
        self.steps += 1
        correction = (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        for group in self.param_groups:
            for each in group["params"]:
                state, gradient = self.state[each], each.grad
                if not state:
                    state["m"], state["v"] = torch.zeros_like(each), torch.zeros_like(each)
                state["m"].lerp_(gradient, 1 - 0.9)
                state["v"].lerp_(gradient.square(), 1 - 0.999)
                each.sub_(group["lr"] * correction * state["m"] / (state["v"].sqrt() + 1e-8))


class Twin(nn.Module):
    """A network over the rows of `datasets/synthetic/histories.py`, with one history.

    Args:
        net: our `DIN` or `BST`.
        keys: the keys of each table, rising, in the order of the schema's tables. The keys are
            inserted into our tables, and the initial values of the rows are copied to PyTorch.
        tables: our tables in the same order.
    """

    def __init__(self, net: Any, keys: list[np.ndarray], tables: list[Any]) -> None:
        super().__init__()
        self.keys = keys
        self.tables = nn.ModuleList(
            [_embedding(table, of) for table, of in zip(tables, keys, strict=True)]
        )
        schema = net.schema
        self.fields = [list(each.fields) for each in schema.tables]
        (self.of_items,) = (k for k, each in enumerate(schema.tables) if each.histories)
        self.has_numbers = bool(schema.numbers)
        self.history: nn.Module = _Pool(net.pools[0]) if hasattr(net, "pools") else _Blocks(net)
        self.deep = _perceptron(net.deep)

    def forward(self, batch: Mapping[str, np.ndarray]) -> torch.Tensor:
        """Return the logits [B, 1] of a batch of our arrays."""
        vectors = [
            table(self._numbered(k, batch["ids"][:, self.fields[k]]))
            for k, table in enumerate(self.tables)
        ]
        parts = [each.flatten(1) for each in vectors]
        if self.has_numbers:
            parts.append(torch.from_numpy(batch["numbers"]))
        offsets = batch["seen.offsets"]
        lengths = np.diff(offsets)
        block = np.zeros((len(lengths), max(int(lengths.max()), 1)), np.int64)
        mask = np.arange(block.shape[1]) < lengths[:, None]
        block[mask] = batch["seen.values"]
        events = self.tables[self.of_items](self._numbered(self.of_items, block))
        events = events * torch.from_numpy(mask)[..., None]
        (candidate,) = vectors[self.of_items].unbind(1)
        parts += self.history(candidate, events, torch.from_numpy(lengths))
        return self.deep(torch.cat(parts, 1))

    def _numbered(self, table: int, keys: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.searchsorted(self.keys[table], keys))


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


class _Pool(nn.Module):
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
        """candidate [B, dim], events [B, L, dim], lengths [B] -> sum and product with it."""
        mask = torch.arange(events.shape[1]) < lengths[:, None]
        c = candidate[:, None].expand_as(events)
        joined = torch.cat((c, events, c - events, c * events), -1)
        x = self.first(functional.linear(joined, self.weight, self.bias), mask)
        scores = self.last(self.third(self.second(x), mask)) * mask[..., None]
        pooled = (scores * events).sum(1)
        return [pooled, candidate * pooled]


class _Blocks(nn.Module):
    """The transformer blocks of BST."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([_Block(each) for each in net.blocks])

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


class _Block(nn.Module):
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

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """x [B, L, dim], lengths [B] -> [B, L, dim]."""
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


def _norm(ours: Any) -> nn.LayerNorm:
    made = nn.LayerNorm(ours.gamma.shape[0], eps=1e-5)
    made.weight, made.bias = _parameter(ours.gamma), _parameter(ours.beta)
    return made


def _embedding(table: Any, keys: np.ndarray) -> nn.Embedding:
    rows = torch.from_numpy(table.insert_rows(keys).copy())
    return nn.Embedding.from_pretrained(rows, freeze=False, sparse=True)
