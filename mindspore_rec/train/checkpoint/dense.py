# SPDX-License-Identifier: Apache-2.0
"""Dense parameters, including the optimizer's parameters, as arrays by parameter name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from mindspore_rec.common.run.matching import matched

__all__ = ["dense_arrays", "dense_parameters", "set_dense"]

Arrays = dict[str, np.ndarray]


def dense_arrays(cell: nn.Cell) -> Arrays:
    """Return copies of all dense parameters, by name.

    Raises:
        TypeError: a parameter has a dtype that NumPy lacks (bfloat16).
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


def set_dense(
    cell: nn.Cell, arrays: Arrays, source: Path, left_out: Sequence[Parameter] = ()
) -> None:
    """Set the cell's parameters; ignore values whose names are not names of parameters.

    Args:
        cell: a network or a training cell.
        arrays: values by parameter name.
        source: path from which the values were read, for error messages.
        left_out: parameters that are not set. Default: none.

    Raises:
        CheckpointError: a parameter has no value, or its value has the wrong shape or a dtype of
            the wrong kind. A CheckpointError is raised before any parameter changes.
    """
    pairs = matched(dense_parameters(cell, left_out), arrays, source)
    new: dict[str, Any] = {
        parameter.name: Parameter(Tensor(array), name=parameter.name) for parameter, array in pairs
    }
    if new:
        # The anchors and the parameters in `left_out` are included, because MindSpore would
        # otherwise warn about parameters without a value.
        new = {each.name: each for each in cell.get_parameters()} | new
        ms.load_param_into_net(cell, new)


def dense_parameters(cell: nn.Cell, left_out: Sequence[Parameter] = ()) -> list[Parameter]:
    """Return all parameters of a cell except the tables' anchors and the parameters `left_out`."""
    without = {id(each) for each in left_out}
    every = (each for each in cell.get_parameters() if not _is_anchor(each))
    return [each for each in every if id(each) not in without]


def _is_anchor(parameter: Parameter) -> bool:
    return hasattr(parameter, "mindspore_rec_table")
