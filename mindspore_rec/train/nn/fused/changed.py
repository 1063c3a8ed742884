# SPDX-License-Identifier: Apache-2.0
"""Finds changed cells inside a fused layer; after a change, the layer's operator is not used."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn

__all__ = ["changed_inside", "is_altered", "is_watched"]

_HOOKS = (
    "_lazy_forward_pre_hook",
    "_lazy_forward_hook",
    "_lazy_backward_pre_hook",
    "_lazy_backward_hook",
)
# Types of cells that compute the same function in training and in evaluation.
_MODELESS = (nn.Dense, nn.ReLU, nn.LeakyReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softmax)


def changed_inside(
    layer: nn.Cell, cells: Sequence[nn.Cell], made_of: Sequence[nn.Cell]
) -> tuple[nn.Cell, str] | None:
    """Return the first cell that the layer's operator cannot replace, and the reason.

    Args:
        layer: the fused layer.
        cells: the cells inside the layer, without the layer itself.
        made_of: the cells that were inside the layer when the layer's operator was made.

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


def is_altered(cell: nn.Cell) -> bool:
    """Return whether `to_float` or `recompute` has changed a cell.

    Example:
        >>> import mindspore as ms
        >>> is_altered(nn.ReLU()), is_altered(nn.ReLU().to_float(ms.float16))
        (False, True)
    """
    flags = cell.get_flags()
    return bool(flags.get("fp16") or flags.get("bf16") or getattr(cell, "_recompute_cell", None))


def _is_modeless(cell: nn.Cell) -> bool:
    return isinstance(cell, _MODELESS) or bool(cell._cells)
