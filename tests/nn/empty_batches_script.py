# SPDX-License-Identifier: Apache-2.0
"""Run each public cell on a batch with rows and on an empty batch; print the outcomes as JSON.

The cells run in this process, because MindSpore's kernels may end a process for an empty tensor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

from mindspore_rec import LazyAdam, MapParameter, TableConfig, nn as cells

FIELDS, DIM = 3, 4
Inputs = Callable[[int], tuple[Tensor, ...]]
MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}


def numbers(*shape: int) -> Tensor:
    """Return float32 numbers."""
    return Tensor(np.random.default_rng(0).random(shape, np.float32))


def ids(*shape: int) -> Tensor:
    """Return int64 ids of at most 8."""
    return Tensor(np.random.default_rng(0).integers(0, 9, shape))


def offsets(lists: int, each: int = 2) -> Tensor:
    """Return the offsets of lists with `each` values."""
    return Tensor(np.arange(lists + 1, dtype=np.int64) * each)


def tables(dims: tuple[int, ...]) -> list[MapParameter]:
    """Return tables with these sizes of a row."""
    name = f"empty.{sum(dims)}"
    configs = [TableConfig(dim, name=f"{name}.{i}") for i, dim in enumerate(dims)]
    return [MapParameter(config=config) for config in configs]


def cases() -> Iterator[tuple[str, ms.nn.Cell, Inputs]]:
    """Yield the name of a class, a cell, and a function of the number of rows: the inputs."""
    wide = FIELDS * DIM
    yield "BCEWithLogitsLoss", cells.BCEWithLogitsLoss(), lambda n: (numbers(n, 1), numbers(n, 1))
    yield "BPRLoss", cells.BPRLoss(), lambda n: (numbers(n), numbers(n, 5))
    for kind in ("CrossNet", "CrossNetMix", "CrossNetV2"):
        yield kind, getattr(cells, kind)(wide), lambda n: (numbers(n, wide),)
    yield "Dice", cells.Dice(wide), lambda n: (numbers(n, wide),)
    yield "PReLU", cells.PReLU(wide), lambda n: (numbers(n, wide),)
    for kind in ("DotInteraction", "FactorizationMachine"):
        yield kind, getattr(cells, kind)(FIELDS, DIM), lambda n: (numbers(n, FIELDS, DIM),)
    yield (
        "EmbeddingBag",
        cells.EmbeddingBag(TableConfig(DIM, name="empty.bag")),
        lambda n: (ids(2 * n), Tensor(np.arange(n, dtype=np.int64) * 2)),
    )
    yield "EmbeddingLookup", cells.EmbeddingLookup(9, DIM), lambda n: (ids(n, FIELDS),)
    for dims in ((DIM, DIM, DIM), (DIM, DIM, 2 * DIM)):
        group = cells.GroupedEmbedding(tables(dims))
        yield "GroupedEmbedding", group, lambda n: (ids(n, FIELDS),)
    yield (
        "HashEmbeddingLookup",
        cells.HashEmbeddingLookup(DIM, ms.int64, name="empty.hash"),
        lambda n: (ids(n, FIELDS),),
    )
    yield "HSTU", cells.HSTU(wide, 8, 2), lambda n: (numbers(2 * n, wide), offsets(n))
    yield (
        "HistoryTransformer",
        cells.HistoryTransformer(wide, 2, wide, 8),
        lambda n: (numbers(2 * n, wide), offsets(n)),
    )
    yield "MLP", cells.MLP(wide, (8,), out_features=1), lambda n: (numbers(n, wide),)
    yield "MMoE", cells.MMoE(wide, 2, (8,), 2), lambda n: (numbers(n, wide),)
    for kind in ("NumberEmbedding", "PeriodicEmbedding", "PiecewiseLinear"):
        yield kind, getattr(cells, kind)(FIELDS, DIM), lambda n: (numbers(n, FIELDS),)
    yield (
        "SampledSoftmaxLoss",
        cells.SampledSoftmaxLoss(),
        lambda n: (numbers(n, DIM), numbers(n, DIM), numbers(5, DIM)),
    )
    yield (
        "SoftmaxLoss",
        cells.SoftmaxLoss(),
        lambda n: (numbers(n, DIM), numbers(9, DIM), ids(n)),
    )
    yield "Sum", cells.Sum(2, DIM), lambda n: (numbers(n, DIM), numbers(n, DIM))
    yield (
        "TableLookup",
        cells.TableLookup(TableConfig(DIM, name="empty.lookup")),
        lambda n: (ids(n, FIELDS),),
    )
    yield (
        "TargetAttention",
        cells.TargetAttention(DIM, (8,)),
        lambda n: (numbers(n, DIM), numbers(2 * n, DIM), offsets(n)),
    )
    yield "ToPadded", cells.ToPadded(3), lambda n: (numbers(n, DIM), offsets(1, n))
    yield (
        "ToValues",
        cells.ToValues(),
        lambda n: (numbers(1, 3, DIM), offsets(1, n), numbers(n, DIM)),
    )


class Total(ms.nn.Cell):
    """Sum of a cell's first output, and this output."""

    def __init__(self, cell: ms.nn.Cell) -> None:
        super().__init__()
        self.cell = cell

    def construct(self, *inputs: Tensor) -> Any:
        output = self.cell(*inputs)
        first = output[0] if isinstance(output, tuple) else output
        return ops.sum(first), first


def run(cell: ms.nn.Cell, inputs: Inputs) -> list[Any]:
    """Return the shape of the output, or the error, of 2 rows and of 0, evaluated and trained."""
    weights = cell.trainable_params()
    optimizer = LazyAdam(weights) if weights else None
    outcome: list[Any] = []
    for training in (False, True):
        total = Total(cell)
        total.set_train(training)
        learned = optimizer and optimizer.parameters
        step = ms.value_and_grad(total, None if weights else 0, learned, has_aux=True)
        for rows in (2, 0):
            try:
                if training:
                    (_, first), gradients = step(*inputs(rows))
                    if optimizer is not None:
                        optimizer(gradients)
                else:
                    first = total(*inputs(rows))[1]
                outcome.append(list(first.asnumpy().shape))
            except (ValueError, RuntimeError, TypeError) as error:
                outcome.append(f"{type(error).__name__}: {str(error)[:160]}")
    return outcome


def main() -> None:
    """Run all cells in the mode that the command names."""
    ms.set_context(mode=MODES[sys.argv[1]])
    outcomes: dict[str, Any] = {}
    for name, cell, inputs in cases():
        print(name, file=sys.stderr, flush=True)  # the last one, if the process ends
        outcomes.setdefault(name, []).append(run(cell, inputs))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
