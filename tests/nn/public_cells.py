# SPDX-License-Identifier: Apache-2.0
"""The public cells of `mindspore_rec.nn`, each with inputs, for tests of all cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec import MapParameter, TableConfig, nn as cells

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
