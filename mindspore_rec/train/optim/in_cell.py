# SPDX-License-Identifier: Apache-2.0
"""optimizers_in: finds the optimizers of a training cell."""

from __future__ import annotations

from typing import Any

from mindspore import nn

__all__ = ["optimizers_in"]


def optimizers_in(cell: nn.Cell) -> list[nn.Optimizer]:
    """Return all optimizers of a training cell, including optimizers in lists, tuples and dicts."""
    optimizers: list[nn.Optimizer] = []
    for _, inside in cell.cells_and_names():
        members: list[Any] = [inside]
        for value in vars(inside).values():
            if isinstance(value, (list, tuple)):
                members += value
            elif isinstance(value, dict):
                members += value.values()
        optimizers += [each for each in members if isinstance(each, nn.Optimizer)]
    return list({id(each): each for each in optimizers}.values())
