# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes of weighted sums over lists; the native form is in csrc/sequence/pooling.h."""

from __future__ import annotations

import numpy as np

from mindspore_rec.train.export.histories.lists import Lists, block_of
from mindspore_rec.train.export.histories.nodes import Nodes

__all__ = ["pool_values"]

_MOST_ELEMENTS = 1 << 20  # of a padded block with several lists
_LEAST = np.finfo(np.float32).min


def pool_values(nodes: Nodes, scores: str, values: str, offsets: str, *, softmax: bool) -> str:
    """Return the weighted sum of each list's values.

    A loop pads and sums a group of lists at a time, so a long list does not make all other lists
    longer.

    Args:
        nodes: `Nodes` object to which the new nodes are added.
        scores: float32 `[N, 1]`.
        values: float32 `[N, width]`.
        offsets: int64 `[B + 1]`.
        softmax: whether the weights are the softmax of each list's scores.

    Returns:
        Name of a float32 tensor `[B, width]`; the row of an empty list is 0.
    """
    lists = Lists(nodes, offsets)
    width = nodes.size(values, 1)
    scores = nodes.with_zeros(nodes.add("Squeeze", scores, axes=[1]), nodes.constant([]))
    values = nodes.with_zeros(values, width)
    elements = nodes.add("Mul", lists.longest(), width)
    size = nodes.add("Div", nodes.constant([_MOST_ELEMENTS]), elements)
    size = nodes.add("Max", size, nodes.constant([1]))

    def body(inner: Nodes, turn: str) -> str:
        first = inner.add("Mul", turn, size)
        last = inner.add("Min", inner.add("Add", first, size), lists.count)
        block = block_of(inner, lists, inner.numbers(first, last))
        weights = inner.add("Gather", scores, block.places)
        if softmax:
            there = inner.add("Less", inner.row(block.columns), block.counts)
            # For an empty list, the weights do not matter, because all its rows are zeros.
            weights = inner.where(there, weights, inner.constant(_LEAST, np.float32))
            weights = inner.add("Softmax", weights, axis=1)
        rows = inner.add("Gather", values, block.places)
        sums = inner.add("MatMul", inner.add("Unsqueeze", weights, axes=[1]), rows)
        return inner.add("Squeeze", sums, axes=[1])

    nothing = nodes.filled(nodes.concat(nodes.constant([0]), width), 0, np.float32)
    return nodes.repeat(nodes.quotient_up(lists.count, size), nothing, body)
