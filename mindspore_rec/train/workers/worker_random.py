# SPDX-License-Identifier: Apache-2.0
"""Seeds a network's random operators so that each worker draws different random numbers."""

from __future__ import annotations

import warnings

from mindspore import nn
from mindspore.ops import Primitive

from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.train.nn.dropout import SeededDropout
from mindspore_rec.train.nn.fused.layer import cells_of_operators

__all__ = ["draw_apart"]

_SEEDS = (("Seed0", "Seed1"), ("seed", "seed2"))  # attributes of MindSpore's random operators
_UNSEEDED = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)  # on the CPU all processes draw alike


def draw_apart(group: Group, network: nn.Cell) -> None:
    """Give each worker its own random seeds; warn if results then differ from a run in one process.

    With the same `mindspore.set_seed` on all workers, `nn.Dropout` would drop the same units in the
    rows of every worker. Layers of this package that run as one operator need no seed per worker,
    because a row's mask depends only on the row's index in the whole batch of all workers. Random
    functions in a `construct`, such as `ops.dropout`, are not detected.

    Args:
        group: the workers.
        network: the network, which has not yet run a step.

    Warns:
        RuntimeWarning: worker 0 warns at most twice: once about cells of MindSpore, and once about
            layers of this package that run as MindSpore's layers. A warning names the first
            affected cell and the remedy.
    """
    drawing = _drawing(network)
    for cell in drawing.values():
        for operator in _seeded(cell):
            _seed_apart(operator, group.rank)
    if group.rank == 0:
        _warn(group, drawing)
        _warn_of_unfused(group, network)


def _warn(group: Group, drawing: dict[str, nn.Cell]) -> None:
    if not drawing:
        return
    # If possible, the warning names a cell that draws equal numbers on all workers, because such a
    # cell does more harm than a cell that draws different numbers.
    name, cell = min(drawing.items(), key=lambda named: not isinstance(named[1], _UNSEEDED))
    alike = " and the same numbers on each" if isinstance(cell, _UNSEEDED) else ""
    warnings.warn(
        f"'{name}', of type {type(cell).__name__}, draws random numbers on each worker for its own "
        f"rows{alike}: {group.size} workers train something else than one process. "
        "MLP(dropout=...) of mindspore_rec.nn gives each row the mask of its number in the batch "
        "of all workers",
        RuntimeWarning,
        stacklevel=3,
    )


def _warn_of_unfused(group: Group, network: nn.Cell) -> None:
    fused = cells_of_operators(network)
    for name, cell in network.cells_and_names():
        if isinstance(cell, SeededDropout) and id(cell) not in fused:
            warnings.warn(
                f"'{name}' drops units by masks that all workers begin with alike, since its layer "
                f"runs as MindSpore's layers: {group.size} workers train something else than one "
                "process. docs/dense.md says when a layer runs as one operator, which gives each "
                "row the mask of its number in the batch of all workers",
                RuntimeWarning,
                stacklevel=3,
            )
            return


def _drawing(network: nn.Cell) -> dict[str, nn.Cell]:
    """Return the cells that draw random numbers themselves, as a dict from name to cell."""
    return {
        name: cell
        for name, cell in network.cells_and_names()
        if (isinstance(cell, _UNSEEDED) or _seeded(cell)) and not _never_drops(cell)
    }


def _seeded(cell: nn.Cell) -> list[Primitive]:
    """Return a cell's operators that have two seeds as attributes."""
    operators = [each for each in cell._primitives.values() if isinstance(each, Primitive)]
    return [each for each in operators if any(set(pair) <= set(each.attrs) for pair in _SEEDS)]


def _seed_apart(operator: Primitive, worker: int) -> None:
    """Add the worker's index to the operator's second seed, once, if the operator has a seed."""
    first, second = next(pair for pair in _SEEDS if set(pair) <= set(operator.attrs))
    seeds = operator.attrs[first], operator.attrs[second]
    if any(seeds) and not operator.__dict__.get("_mindspore_rec_apart"):
        operator.__dict__["_mindspore_rec_apart"] = True
        operator.add_prim_attr(second, seeds[1] + worker)


def _never_drops(cell: nn.Cell) -> bool:
    if isinstance(cell, nn.Dropout):
        return 0 in (cell.p, 1 - cell.keep_prob)
    if isinstance(cell, nn.Dropout1d):
        return cell.prob == 0
    return isinstance(cell, _UNSEEDED) and cell.keep_prob == 1
