# SPDX-License-Identifier: Apache-2.0
"""DIN, BST, SASRec and HSTU in PyTorch, with the current weights of our networks.

The layers over histories are in `torch_blocks.py`. `history_twins.py` trains the networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.sequences.torch_blocks import LastOutput, Pool, State
from benchmarks.torch_twins import _linear, _parameter, _perceptron

__all__ = ["Adam", "Twin"]


class Adam(torch.optim.Optimizer):
    """Adam in the form of `LazyAdam` and `SparseAdam`: epsilon is added before the bias correction.

    `torch.optim.Adam` adds epsilon after the bias correction. If a model and its twin use different
    forms of Adam, their steps differ for gradients near epsilon, such as 1e-7, and the losses
    differ by a few thousandths after 100 steps.

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
        net: our `DIN`, `BST`, `SASRec` or `HSTU`.
        keys: the keys of each table in ascending order; the tables are in the schema's order. The
            keys are inserted into our tables, and the initial values of the rows are copied to
            PyTorch.
        tables: our tables, in the order of `keys`.
        weights: our tables of first-order weights, in the order of `keys`; none for `DIN` and
            `BST`.
    """

    def __init__(
        self, net: Any, keys: list[np.ndarray], tables: list[Any], weights: list[Any]
    ) -> None:
        super().__init__()
        self.keys = keys
        self.tables = nn.ModuleList(map(_embedding, tables, keys))
        self.weights = nn.ModuleList(map(_embedding, weights, keys)) if weights else None
        schema = net.schema
        self.fields = [list(each.fields) for each in schema.tables]
        (self.of_items,) = (k for k, each in enumerate(schema.tables) if each.histories)
        self.score: nn.Module = _ByState(net) if self.weights else _ByPerceptron(net)

    @property
    def rows(self) -> list[nn.Parameter]:
        """Weights of the embedding tables; the gradients of the weights are sparse."""
        return [each.weight for each in self.modules() if isinstance(each, nn.Embedding)]

    def forward(self, batch: Mapping[str, np.ndarray]) -> torch.Tensor:
        """Return the logits [B, 1] of a batch of our arrays."""
        keys = [self._numbered(k, batch["ids"][:, fields]) for k, fields in enumerate(self.fields)]
        vectors = [table(of) for table, of in zip(self.tables, keys, strict=True)]
        linear = None
        if self.weights is not None:
            linear = torch.cat([of(k)[..., 0] for of, k in zip(self.weights, keys, strict=True)], 1)
        offsets = batch["seen.offsets"]
        lengths = np.diff(offsets)
        mask = np.arange(max(int(lengths.max()), 1)) < lengths[:, None]
        block, times = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.int64)
        block[mask] = batch["seen.values"]
        if "seen_at.values" in batch:
            times[mask] = batch["seen_at.values"]
        events = self.tables[self.of_items](self._numbered(self.of_items, block))
        (candidate,) = vectors.pop(self.of_items).unbind(1)
        row = _Row(
            [*(each.flatten(1) for each in vectors), torch.from_numpy(batch["numbers"])],
            linear,
            candidate,
            events * torch.from_numpy(mask)[..., None],
            torch.from_numpy(lengths),
            torch.from_numpy(times),
        )
        return self.score(row)

    def _numbered(self, table: int, keys: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.searchsorted(self.keys[table], keys))


class _Row(NamedTuple):
    """Inputs from which a network's last part computes the scores of one batch.

    `others` are the numbers, and the vectors of all columns except the candidate's column. `linear`
    are the first-order weights `[B, columns]`. `events` is `[B, L, dim]`, `times` int64 `[B, L]`.
    """

    others: list[torch.Tensor]
    linear: torch.Tensor | None
    candidate: torch.Tensor
    events: torch.Tensor
    lengths: torch.Tensor
    times: torch.Tensor


class _ByPerceptron(nn.Module):
    """The score of DIN and BST: a perceptron over the row and the combined history."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.history = Pool(net.pools[0]) if hasattr(net, "pools") else LastOutput(net)
        self.deep = _perceptron(net.deep)

    def forward(self, row: _Row) -> torch.Tensor:
        """Return the logits [B, 1]."""
        made = self.history(row.candidate, row.events, row.lengths)
        *vectors, numbers = row.others
        return self.deep(torch.cat([*vectors, row.candidate, numbers, *made], 1))


class _ByState(nn.Module):
    """The score of SASRec and HSTU: the user's state times the candidate, plus a linear model."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.state = State(net.encoders[0])
        self.context = _linear(net.contexts[0].layers[0])
        self.numbers, self.bias = _linear(net.linear.numbers), _parameter(net.bias)

    def forward(self, row: _Row) -> torch.Tensor:
        """Return the logits [B, 1]."""
        state = self.state(row.events, row.lengths, row.times)
        state = state + self.context(torch.cat(row.others, 1))
        assert row.linear is not None
        linear = row.linear.sum(1, keepdim=True) + self.numbers(row.others[-1]) + self.bias
        return linear + (state * row.candidate).sum(1, keepdim=True)


def _embedding(table: Any, keys: np.ndarray) -> nn.Embedding:
    rows = torch.from_numpy(table.insert_rows(keys).copy())
    return nn.Embedding.from_pretrained(rows, freeze=False, sparse=True)
