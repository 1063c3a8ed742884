# SPDX-License-Identifier: Apache-2.0
"""Dense parameters, and those of the optimizer, as arrays by parameter name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

__all__ = ["dense_arrays", "dense_parameters", "matched", "set_dense"]

Arrays = dict[str, np.ndarray]


def dense_arrays(cell: nn.Cell) -> Arrays:
    """Copies of all parameters but the tables' anchors, by name.

    Raises:
        TypeError: NumPy has no such type (bfloat16).
    """
    arrays = {}
    for parameter in dense_parameters(cell):
        values = parameter.asnumpy()
        if values.dtype.kind not in "biuf" or parameter.dtype == ms.bfloat16:
            raise TypeError(
                f"parameter '{parameter.name}' must have a dtype of NumPy, got {parameter.dtype}"
            )
        arrays[parameter.name] = np.array(values, order="C")
    return arrays


def set_dense(cell: nn.Cell, arrays: Arrays, source: Path) -> None:
    """Gives the cell's parameters these values; those that it does not have are left out.

    Args:
        cell: a network or a training cell.
        arrays: by name.
        source: where they come from, for messages.

    Raises:
        ValueError: a parameter has no value, or one of another shape; nothing is changed.
    """
    pairs = matched(dense_parameters(cell), arrays, source)
    new: dict[str, Any] = {
        parameter.name: Parameter(Tensor(array), name=parameter.name) for parameter, array in pairs
    }
    if new:
        ms.load_param_into_net(cell, new)


def matched(
    parameters: Sequence[Parameter], arrays: Arrays, source: Path
) -> list[tuple[Parameter, np.ndarray]]:
    """Each parameter with its array.

    Raises:
        ValueError: a parameter has no value, or one of another shape.
    """
    lost = [parameter.name for parameter in parameters if parameter.name not in arrays]
    if lost:
        raise ValueError(f"{source} has no value for {lost}")
    for parameter in parameters:
        shape = arrays[parameter.name].shape
        if shape != tuple(parameter.shape):
            raise ValueError(
                f"parameter '{parameter.name}' has shape {tuple(parameter.shape)}, in {source} it "
                f"has {shape}"
            )
    return [(parameter, arrays[parameter.name]) for parameter in parameters]


def dense_parameters(cell: nn.Cell) -> list[Parameter]:
    """All parameters but the tables' anchors."""
    return [each for each in cell.get_parameters() if not hasattr(each, "mindspore_rec_table")]
