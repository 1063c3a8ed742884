# SPDX-License-Identifier: Apache-2.0
"""Determines which layers and activations an operator can compute."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import nn

from mindspore_rec.train.nn.fused.layer import FusedLayer

__all__ = ["activation_of", "is_dense", "is_layer", "keeps_state"]

_FUNCTIONS = {
    f"{module}.{name}": name
    for module in ("ops", "mint", "mint.nn.functional")
    for name in ("relu", "tanh", "sigmoid")
}


def is_layer(cell: nn.Cell) -> bool:
    """Return whether the fused operator can compute the cell as one layer.

    Example:
        >>> is_layer(nn.Dense(2, 1)), is_layer(nn.ReLU())
        (True, False)
    """
    if isinstance(cell, FusedLayer):
        return type(cell).add_to is not FusedLayer.add_to
    return is_dense(cell)


def is_dense(cell: nn.Cell) -> bool:
    """Return whether a cell is a float32 linear layer with a known activation or without one.

    Example:
        >>> is_dense(nn.Dense(2, 1, activation="relu")), is_dense(nn.Dense(2, 1, activation="elu"))
        (True, False)
    """
    if type(cell) is not nn.Dense or cell.weight.dtype != ms.float32:
        return False
    return not cell.activation_flag or activation_of(cell.activation) is not None


def activation_of(target: Any) -> str | None:
    """Return the name of `target` in programs, or None if `target` is not a supported activation.

    Args:
        target: a cell, or the name of a function, such as 'ops.relu'.

    Example:
        >>> activation_of(nn.Tanh()), activation_of("mint.sigmoid"), activation_of(nn.ELU())
        ('tanh', 'sigmoid', None)
    """
    if isinstance(target, str):
        return _FUNCTIONS.get(target)
    if type(target) is nn.LeakyReLU:
        return "leakyrelu" if target.alpha == 0.2 else None
    if type(target) is nn.GELU:
        return "gelu" if target.approximate == "tanh" else None
    return {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}.get(type(target))


def keeps_state(layer: nn.Cell) -> bool:
    """Return whether a call changes the layer's state, as normalization and dropout do.

    Example:
        >>> from mindspore_rec.nn import MLP
        >>> keeps_state(MLP(2, (3,))), keeps_state(MLP(2, (3,), dropout=0.5))
        (False, True)
    """
    return any(not parameter.requires_grad for parameter in layer.get_parameters())
