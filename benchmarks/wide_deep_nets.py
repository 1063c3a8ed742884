# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep for `wide_deep_step.py`: with mindspore_rec's cells, or only with MindSpore's."""

from __future__ import annotations

import itertools
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import HeUniform

import mindspore_rec as mr
from mindspore_rec.nn import MLP, BCEWithLogitsLoss

# name -> sparse fields, dense columns, hidden layers
SHAPES: dict[str, tuple[int, int, list[int]]] = {
    "criteo_26": (26, 13, [1024, 512, 256]),
    "criteo_39": (39, 0, [1024] * 5),
    "mindrec": (39, 0, [1024] * 7),  # of MindRec's own benchmark: --rows 5860000 --batch 16000
}
USUAL_SHAPES = ("criteo_26", "criteo_39")
DIM = 16
_CHUNK = 500_000


def layers_of_shape(shape: str) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of each layer of the perceptron; `shape` is a key of `SHAPES`."""
    fields, columns, hidden = SHAPES[shape]
    return list(itertools.pairwise([fields * DIM + columns, *hidden, 1]))


class WideDeep(nn.Cell):
    """Two lookups of the same ids, a perceptron and the loss.

    Args:
        deep: lookup [B, F] -> [B, F, 16].
        wide: lookup [B, F] -> [B, 1].
        shape: a key of `SHAPES`.
        precision: type of the matrix products, 'float32' or 'bfloat16'.
    """

    def __init__(self, deep: nn.Cell, wide: nn.Cell, shape: str, precision: str) -> None:
        super().__init__()
        fields, self.columns, hidden = SHAPES[shape]
        self.deep = deep
        self.wide = wide
        width = fields * DIM
        widths = (width, self.columns) if self.columns else width
        self.mlp = MLP(widths, hidden, out_features=1, compute_dtype=precision)
        self.loss = BCEWithLogitsLoss()

    def construct(self, ids: Tensor, dense: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], dense [B, N], label [B, 1] -> loss."""
        deep = self.deep(ids)
        above = self.mlp(deep, dense) if self.columns > 0 else self.mlp(deep)
        return self.loss(above + self.wide(ids), label)


class VanillaWideDeep(nn.Cell):
    """Wide & Deep with the loss, made of MindSpore's own cells, for ids from 0 to `rows - 1`.

    Args:
        rows: number of ids per table.
        shape: a key of `SHAPES`.
    """

    def __init__(self, rows: int, shape: str) -> None:
        super().__init__()
        self.columns = SHAPES[shape][1]
        self.deep = nn.EmbeddingLookup(rows, DIM, "zeros", target="CPU", sparse=True)
        self.wide = nn.EmbeddingLookup(rows, 1, "zeros", target="CPU", sparse=True)
        layers: list[nn.Cell] = []
        for width, units in layers_of_shape(shape):
            layers += [nn.Dense(width, units, HeUniform(), "zeros"), nn.ReLU()]
        self.mlp = nn.SequentialCell(layers[:-1])
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids: Tensor, dense: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], dense [B, N], label [B, 1] -> loss."""
        x = self.deep(ids).reshape((ids.shape[0], -1))
        if self.columns > 0:
            x = ops.concat((x, dense), 1)
        return self.loss(self.mlp(x) + self.wide(ids).sum(1), label)


def hash_lookups(rows: int, name: str) -> tuple[Any, Any]:
    """Return the lookups of the deep part and of the wide part; all ids have rows in the tables.

    Args:
        rows: number of ids per table; `bench_common.spread_keys` computes the ids' keys.
        name: prefix of the tables' names.
    """
    deep = mr.HashEmbeddingLookup(DIM, ms.int64, name=f"{name}.deep")
    wide = mr.EmbeddingBag(mr.TableConfig(1, name=f"{name}.wide", initializer="zeros"), "sum")
    both: tuple[Any, ...] = (deep, wide)
    for lookup, start in itertools.product(both, range(0, rows, _CHUNK)):
        numbers = np.arange(start, min(start + _CHUNK, rows))
        lookup.embedding_table.insert_rows(bench_common.spread_keys(numbers))
    return deep, wide
