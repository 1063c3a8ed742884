# SPDX-License-Identifier: Apache-2.0
"""Finds cells inside a fused layer that one operator cannot stand for any more."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn

__all__ = ["changed_inside", "is_watched"]

_HOOKS = (
    "_lazy_forward_pre_hook",
    "_lazy_forward_hook",
    "_lazy_backward_pre_hook",
    "_lazy_backward_hook",
)
# Cells that compute the same in training and in evaluation.
_MODELESS = (nn.Dense, nn.ReLU, nn.LeakyReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softmax)


def changed_inside(
    layer: nn.Cell, cells: Sequence[nn.Cell], made_of: Sequence[nn.Cell]
) -> tuple[nn.Cell, str] | None:
    """Return the first cell that computes otherwise than the layer's operator, and what it has.

    Args:
        layer: the fused layer.
        cells: the cells in it, itself left out.
        made_of: the cells that were in it when its operator was made.

    Example:
        >>> from mindspore_rec.nn import MLP
        >>> mlp = MLP(2, (3,), batch_norm=True).set_train()
        >>> norm = mlp.layers[1].set_train(False)
        >>> changed_inside(mlp, [norm], [norm])[1]
        'is set to evaluation in a layer that trains'
    """
    for cell in cells:
        if is_watched(cell):
            return cell, "has hooks"
        if cell.training != layer.training and not _is_modeless(cell):
            modes = ("evaluation", "trains") if layer.training else ("training", "evaluates")
            return cell, f"is set to {modes[0]} in a layer that {modes[1]}"
    known = {id(cell) for cell in made_of}
    for cell in cells:
        if id(cell) not in known:
            return cell, "has taken another one's place"
    return None


def is_watched(cell: nn.Cell) -> bool:
    """Return whether a cell has hooks.

    Example:
        >>> is_watched(nn.ReLU())
        False
    """
    return any(getattr(cell, hooks, None) for hooks in _HOOKS)


def _is_modeless(cell: nn.Cell) -> bool:
    return isinstance(cell, _MODELESS) or bool(cell._cells)
