# SPDX-License-Identifier: Apache-2.0
"""Finds the networks that cells are a part of."""

from __future__ import annotations

import gc

from mindspore import nn

__all__ = ["cells_around"]


def cells_around(*cells: nn.Cell) -> list[nn.Cell]:
    """Return cells, and all cells of the process that one of them is in, at any depth.

    A cell does not know its parents: all objects are looked through.

    Example:
        >>> inner = nn.ReLU()
        >>> outer = nn.SequentialCell(nn.SequentialCell(inner))
        >>> [type(cell).__name__ for cell in cells_around(inner)]
        ['ReLU', 'SequentialCell', 'SequentialCell']
    """
    parents: dict[int, list[nn.Cell]] = {}
    for thing in gc.get_objects():
        # By type: isinstance would ask lazy modules for their class and so load them.
        if issubclass(type(thing), nn.Cell):
            for child in vars(thing).get("_cells", {}).values():
                parents.setdefault(id(child), []).append(thing)
    reached = {id(cell): cell for cell in cells}
    waiting = list(cells)
    while waiting:
        for parent in parents.get(id(waiting.pop()), []):
            if id(parent) not in reached:
                reached[id(parent)] = parent
                waiting.append(parent)
    return list(reached.values())
