# SPDX-License-Identifier: Apache-2.0
"""Finds the cells that contain a given cell, at any depth."""

from __future__ import annotations

import gc

from mindspore import nn

__all__ = ["cells_around"]


def cells_around(*cells: nn.Cell) -> list[nn.Cell]:
    """Return `cells`, and all cells of the process that contain one of `cells` at any depth.

    Because a cell has no reference to its parents, the function searches all objects of the
    process.

    Example:
        >>> inner = nn.ReLU()
        >>> outer = nn.SequentialCell(nn.SequentialCell(inner))
        >>> [type(cell).__name__ for cell in cells_around(inner)]
        ['ReLU', 'SequentialCell', 'SequentialCell']
    """
    parents: dict[int, list[nn.Cell]] = {}
    for thing in gc.get_objects():
        # Use `type`, because `isinstance` would load lazy modules.
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
