# SPDX-License-Identifier: Apache-2.0
"""Find the saved values of a network's dense parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mindspore_rec.common.run.errors import CheckpointError

__all__ = ["matched"]

P = TypeVar("P", bound=Any)


def matched(
    parameters: Sequence[P], arrays: Mapping[str, np.ndarray], source: Path
) -> list[tuple[P, np.ndarray]]:
    """Return each parameter together with its array.

    Args:
        parameters: Parameters, or other objects with a name, a shape and a dtype.
        arrays: values by name.
        source: origin of the values, for error messages.

    Raises:
        CheckpointError: a parameter has no value in the checkpoint, or the value and the parameter
            differ in shape or in kind of dtype.
    """
    lost = [parameter.name for parameter in parameters if parameter.name not in arrays]
    if lost:
        raise CheckpointError(f"{source} has no value for {lost}")
    for parameter in parameters:
        shape, dtype = arrays[parameter.name].shape, arrays[parameter.name].dtype
        if shape != tuple(parameter.shape):
            raise CheckpointError(
                f"parameter '{parameter.name}' has shape {tuple(parameter.shape)}, in {source} it "
                f"has {shape}"
            )
        if _kind(parameter.dtype) != _kind(dtype):
            raise CheckpointError(
                f"parameter '{parameter.name}' is {parameter.dtype}, in {source} it is {dtype}"
            )
    return [(parameter, arrays[parameter.name]) for parameter in parameters]


def _kind(dtype: Any) -> str:
    """Return the kind of a MindSpore or NumPy dtype.

    All float types are one kind, because each float type can be converted to each other float type.
    """
    name = str(dtype).lower().rstrip("_")
    return "float" if "float" in name else name
