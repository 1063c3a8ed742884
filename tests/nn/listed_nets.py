# SPDX-License-Identifier: Apache-2.0
"""Networks that are random lists of layers, as ordinary cells and as the old dictionaries."""

from __future__ import annotations

from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.nn import (
    MLP,
    CrossNet,
    CrossNetMix,
    CrossNetV2,
    DotInteraction,
    FactorizationMachine,
    FusedGraph,
    NumberEmbedding,
    Sum,
)

F, N, D = 3, 2, 4
GIVEN = {"0": F * D, "1": N}


class Listed(NamedTuple):
    """A step: how it reads, its layer, what it reads, and the floats per row that it returns."""

    kind: str
    layer: nn.Cell
    reads: tuple[int, ...]
    width: int


class ListedNet(nn.Cell):
    """Network of a list of steps over vectors `[B, F, D]` and numbers `[B, N]`."""

    def __init__(self, steps: list[Listed]) -> None:
        super().__init__()
        self.steps = steps
        self.kinds = tuple(step.kind for step in steps)
        self.reads = tuple(step.reads for step in steps)
        self.layers = nn.CellList([step.layer for step in steps])

    def construct(self, vectors: Tensor, numbers: Tensor) -> Tensor:
        values: Any = (vectors, numbers)
        for k in range(len(self.kinds)):
            read: Any = ()
            for place in self.reads[k]:
                read = (*read, values[place])
            if self.kinds[k] == "join":
                y = self.layers[k](ops.concat(read, 1))
            elif self.kinds[k] == "sum":
                y = read[0]
                for i in range(1, len(read)):
                    y = y + read[i]
            else:
                y = self.layers[k](*read)
            values = (*values, y)
        return values[len(values) - 1]


class DictionaryNet(ListedNet):
    """The same network as a `FusedGraph`."""

    def __init__(self, steps: list[Listed]) -> None:
        super().__init__(steps)
        named = {
            str(k + 2): (
                Sum(len(step.reads), step.width) if step.kind == "sum" else step.layer,
                tuple(map(str, step.reads)),
            )
            for k, step in enumerate(steps)
        }
        self.graph = FusedGraph(GIVEN, named)

    def construct(self, vectors: Tensor, numbers: Tensor) -> Tensor:
        return self.graph(vectors, numbers)


class _Maker:
    def __init__(self, seed: int, dropout: float, batch_norm: bool, activates: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.mlp: dict[str, Any] = {"dropout": dropout, "batch_norm": batch_norm}
        self.activates = activates
        self.steps: list[Listed] = []
        self.vectors: list[int] = []  # values that are vectors, for joins and sums
        self.of_one: list[int] = []

    def add(self, kind: str, layer: nn.Cell, reads: tuple[int, ...], width: int) -> int:
        self.steps.append(Listed(kind, layer, reads, width))
        self.vectors.append(len(self.steps) + 1)
        return len(self.steps) + 1

    def of(self, layer: Any, *reads: int) -> int:
        return self.add("call", layer, reads, layer.out_features)

    def row(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return a row's values and their widths."""
        if self.random.random() < 0.5:
            return (0, 1), (F * D, N)
        scaled = self.of(NumberEmbedding(N, D, 0.5), 1)
        self.vectors.remove(scaled)
        return (0, scaled), (F * D, N * D)

    def add_some(self) -> None:
        reads, widths = self.row()
        choice = int(self.random.integers(5))
        if choice == 0:
            kind = (CrossNet, CrossNetV2, CrossNetMix)[int(self.random.integers(3))]
            self.of(kind(widths, 2), *reads)
        elif choice == 1:
            self.of(MLP(widths, (7, 5), "tanh", **self.mlp), *reads)
        elif choice == 2:
            bottom = self.of(MLP(N, (6, D), "relu", **self.mlp), 1)
            self.of(DotInteraction(F, D, dense=True), 0, bottom)
        elif choice == 3:
            self.of_one.append(self.of(FactorizationMachine(F, D), 0))
        else:
            self.of_one.append(
                self.of(MLP(widths, (6,), "relu", **self.mlp, out_features=1), *reads)
            )
        if self.random.random() < 0.4:
            self.join(int(self.random.integers(1, 5)))

    def join(self, units: int) -> int:
        count = min(len(self.vectors), int(self.random.integers(1, 4)))
        reads = tuple(self.random.choice(self.vectors, count, replace=False).tolist())
        width = sum(self.steps[place - 2].width for place in reads)
        kind = "call" if len(reads) == 1 else "join"
        named = self.activates and self.random.random() < 0.4
        dense = nn.Dense(width, units, activation="sigmoid" if named else None)
        place = self.add(kind, dense, reads, units)
        if self.activates and not named and self.random.random() < 0.5:
            self.vectors.remove(place)
            place = self.add("call", nn.ReLU(), (place,), units)
        return place

    def end(self) -> list[Listed]:
        self.of_one.append(self.join(1))
        if len(self.of_one) > 1:
            self.add("sum", nn.Identity(), tuple(self.of_one), 1)
        return self.steps


def steps_of(
    seed: int, count: int, dropout: float, batch_norm: bool, activates: bool
) -> list[Listed]:
    """Return a random list of layers; the same one, with the same first values, for a seed.

    Args:
        seed: of the draw.
        count: layers at least.
        dropout: dropout of the perceptrons.
        batch_norm: whether they normalize batches.
        activates: whether linear layers have activations, of their own or behind them.
    """
    ms.set_seed(seed + 1)
    maker = _Maker(seed, dropout, batch_norm, activates)
    for _ in range(count):
        maker.add_some()
    return maker.end()
