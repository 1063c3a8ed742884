# SPDX-License-Identifier: Apache-2.0
"""Call a cell with the elements of a tuple as arguments, in a graph that MindSpore can free."""

from __future__ import annotations

from typing import Any

__all__ = ["spread"]


def spread(fn: Any, inputs: tuple[Any, ...]) -> Any:
    """Return `fn(*inputs)`.

    MindSpore 2.10 never frees the graph of a function that takes `*inputs` and contains a call
    `fn(*inputs)`. The graph keeps its cells in memory, including their networks, tables and rows.
    This function contains a separate call for each number of inputs up to 12, so that MindSpore can
    free the graph.

    Args:
        fn: a cell, or a function that a graph can call.
        inputs: arguments of `fn`.

    Example:
        >>> spread(max, (3, 5))
        5
    """
    x = inputs
    n = len(inputs)
    if n == 1:
        return fn(x[0])
    if n == 2:
        return fn(x[0], x[1])
    if n == 3:
        return fn(x[0], x[1], x[2])
    if n == 4:
        return fn(x[0], x[1], x[2], x[3])
    if n == 5:
        return fn(x[0], x[1], x[2], x[3], x[4])
    if n == 6:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5])
    if n == 7:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5], x[6])
    if n == 8:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7])
    if n == 9:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8])
    if n == 10:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9])
    if n == 11:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10])
    if n == 12:
        return fn(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11])
    return fn(*inputs)
