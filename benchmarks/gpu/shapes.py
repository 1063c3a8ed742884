# SPDX-License-Identifier: Apache-2.0
"""The networks that `gpu_step.py` and `gpu_torch.py` train, and their batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import bench_common
import numpy as np

__all__ = ["BATCHES", "DIM", "SHAPES", "Batches", "Shape", "parameters", "products"]

DIM = 16
BATCHES = 4


@dataclass(frozen=True)
class Shape:
    """A network.

    Args:
        fields: number of ids per sample.
        numbers: number of numeric features per sample.
        hidden: widths of the perceptron (for DLRM, of the top perceptron).
        bottom: widths of DLRM's bottom perceptron, without its last width, `DIM`. Default: no DLRM.
        cross: number of layers of DCN-V2's cross network. With a cross network, each numeric
            feature also has an embedding. Default: no cross network.
    """

    fields: int
    numbers: int
    hidden: tuple[int, ...]
    bottom: tuple[int, ...] = ()
    cross: int = 0

    @property
    def wide(self) -> bool:
        """True if the logit includes the sum of one weight per id."""
        return not self.cross and not self.bottom

    @property
    def width(self) -> int:
        """Width of the perceptron's input."""
        if self.bottom:
            return DIM + (self.fields + 1) * self.fields // 2
        return self.fields * DIM + self.numbers * (DIM if self.cross else 1)


# The hidden layers are the same as in wide_deep_nets.py and the models' criteo_x1.yaml.
SHAPES = {
    "wide_deep": Shape(26, 13, (1024, 512, 256)),
    "wide_deep_39": Shape(39, 0, (1024,) * 5),
    "dcn_v2": Shape(26, 13, (500, 500, 500), cross=3),
    "dlrm": Shape(26, 13, (400, 400, 400), bottom=(400, 400)),
}


def products(shape: Shape) -> list[tuple[int, int]]:
    """Return (input width, output width) of each linear layer.

    Example:
        >>> products(Shape(2, 1, (5,)))
        [(33, 5), (5, 1)]
    """
    if shape.cross:
        joined = shape.width + shape.hidden[-1]
        cross = [(shape.width, shape.width)] * shape.cross
        return [*cross, *_chain(shape.width, *shape.hidden), (joined, 1)]
    bottom = _chain(shape.numbers, *shape.bottom, DIM) if shape.bottom else []
    return [*bottom, *_chain(shape.width, *shape.hidden, 1)]


def _chain(*widths: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(widths))


@dataclass(frozen=True)
class Batches:
    """Batches of a network, with Zipf-distributed ids.

    Args:
        ranks: int64 [K, B, F], ids below `rows`; each field has its own ids.
        numbers: float32 [B, N].
        labels: float32 [B, 1].
    """

    ranks: np.ndarray
    numbers: np.ndarray
    labels: np.ndarray

    @staticmethod
    def draw(
        shape: Shape, batch: int, rows: int, zipf: float, seed: int, count: int = BATCHES
    ) -> Batches:
        """Return `count` batches."""
        rng = np.random.default_rng(seed)
        of_field = rows // shape.fields
        ids = bench_common.Zipf(of_field, zipf, rng)
        offsets = np.arange(shape.fields) * of_field
        ranks = np.stack([ids.draw((batch, shape.fields)) + offsets for _ in range(count)])
        numbers = rng.random((batch, shape.numbers), np.float32)
        labels = (rng.random((batch, 1)) < 0.3).astype(np.float32)
        return Batches(ranks, numbers, labels)


def parameters(layers: Sequence[tuple[int, int]]) -> int:
    """Return the number of weights and biases of linear layers."""
    return sum(width * units + units for width, units in layers)
