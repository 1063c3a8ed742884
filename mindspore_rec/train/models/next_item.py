# SPDX-License-Identifier: Apache-2.0
"""NextItemNetwork: base of the networks that score an item by the state of a user's history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.train.models.candidates import Candidates
from mindspore_rec.train.models.inputs import FirstOrder, InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.history.operators import NO_TIMES, RowNorm
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["NextItemNetwork", "times_of"]


class NextItemNetwork(Network):
    """Base class of `SASRec` and `HSTU`, which multiply a user's state by an item's vector.

    A derived class calls `_make` in its constructor.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        arrays: the arrays after `ids` in `Schema.inputs`: `numbers` if the schema has numbers, then
            the values and the offsets of each history.

    Outputs:
        float32 Tensor `[B, 1]`, logits.
    """

    reads_histories: ClassVar[bool] = True

    def _make(self, blocks_of: Callable[[int, tuple[Column, ...]], list[nn.Cell]]) -> None:
        """Make the cells.

        Args:
            blocks_of: function that makes the blocks (cells) for a history. The arguments of the
                function are `dim`, the width of an event's vector, and `columns`, the columns of
                the history. The inputs of a block are values, offsets and times.
        """
        recipe: Any = self._recipe
        name, seed, numbers = recipe["name"], recipe["seed"], recipe["settings"]["numbers"]
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed)
        self.candidates = Candidates(self.inputs, type(self).__name__)
        self.linear = FirstOrder(self.features, f"{name}.linear", seed)
        self.bias = Parameter(Tensor(np.zeros(1, np.float32)), name="bias")
        self.has_numbers = self.features.numbers > 0
        assert self.schema is not None  # Candidates refuses arrays without a schema
        names = self.schema.inputs[1:]
        dims = self.candidates.dims
        self.encoders = nn.CellList()
        times: list[int] = []  # index of the array with the times of each history, -1 for none
        for dim, history in zip(dims, self.schema.histories, strict=True):
            self.encoders.append(_States(dim, blocks_of(dim, history)))
            column = times_of(history)
            times.append(-1 if column is None else names.index(f"{column.name}.values"))
        self.times = tuple(times)
        self.no_times = NO_TIMES
        scored = {part for of_history in self.candidates.candidates for part, _ in of_history}
        self.others = tuple(k for k in range(len(self.inputs.widths)) if k not in scored)
        self.contexts = nn.CellList()
        if self.others:
            widths = [self.inputs.widths[k] for k in self.others]
            for dim in dims:
                self.contexts.append(MLP(widths, (), out_features=dim))

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.bias]

    def construct(self, ids: Tensor, *arrays: Any) -> Tensor:
        """Return the logits."""
        numbers = (arrays[0],) if self.has_numbers else ()
        parts = self.inputs(ids, *numbers)
        histories = self.candidates(parts, arrays)
        score = self.linear(ids, *numbers) + self.bias
        others: Any = ()
        for k in self.others:
            others += (parts[k],)
        for k in range(len(self.encoders)):
            candidate, values, offsets = histories[k]
            times = arrays[self.times[k]] if self.times[k] >= 0 else self.no_times
            state = self.encoders[k](values, offsets, times)
            if len(others) > 0:
                state = state + self.contexts[k](*others)
            score = score + ops.sum(state * candidate, 1, True)
        return score


class _States(nn.Cell):
    """Normalized output of the last block for the newest event of each list.

    Args:
        dim: width of an event's vector.
        blocks: the blocks, whose inputs are values, offsets and times.

    Inputs:
        - **values** (Tensor): float32 `[N, dim]`.
        - **offsets** (Tensor): int64 `[B + 1]`.
        - **times** (Tensor): int64 `[N]`, or `NO_TIMES` if the blocks read no times.

    Outputs:
        float32 Tensor `[B, dim]`; the row of an empty list is 0.
    """

    def __init__(self, dim: int, blocks: list[nn.Cell]) -> None:
        super().__init__()
        self.scale = float(dim) ** 0.5
        self.blocks = nn.CellList(blocks)
        self.norm = RowNorm(dim)
        self.nothing = Tensor(np.zeros((1, dim), np.float32), ms.float32)

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor) -> Tensor:
        """Return the states."""
        x = values * self.scale
        for block in self.blocks:
            x = block(x, offsets, times)
        x = ops.concat((self.nothing, self.norm(x)), 0)
        ends = ops.select(offsets[1:] > offsets[:-1], offsets[1:], ops.zeros_like(offsets[1:]))
        return ops.gather(x, ends, 0)


def times_of(history: tuple[Column, ...]) -> Column | None:
    """Return the column with the times of events: the first side column of int64 values."""
    return next((each for each in history[1:] if each.values == "int64"), None)
