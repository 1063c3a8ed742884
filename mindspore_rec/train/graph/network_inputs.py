# SPDX-License-Identifier: Apache-2.0
"""Inputs of a MindSpore network as `TensorSpec`s, and as Tensors for `Cell.set_inputs`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.columns.tensors import DATATYPES, TensorSpec, datatype_of, parsed_specs

__all__ = ["dynamic_tensor", "input_specs"]


def input_specs(
    network: nn.Cell,
    given: Sequence[TensorSpec | str] | None,
    recorded: Sequence[str] | None = None,
) -> tuple[TensorSpec, ...] | None:
    """Return the specs of the network's inputs, or None if the inputs are unknown.

    If `given` is not None, the specs are read from `given`. If `given` is None, the specs are read
    from the network's `set_inputs` or, if `set_inputs` was never called, from `recorded`. The names
    of the inputs are in the network's attribute `input_names`. If the network has no attribute
    `input_names`, the names are the arguments of `construct`. For variable-length rows, the values
    and the offsets are separate inputs. The attribute `input_offsets` maps the name of each input
    of values to the name of its offsets.

    Raises:
        TypeError, ValueError: the specs do not describe the arguments of `construct`.
    """
    names = list(getattr(network, "input_names", ()))
    names = names or list(inspect.signature(network.construct).parameters)
    offsets = getattr(network, "input_offsets", {})
    known = network.get_inputs()
    if given is None and known is None:
        given = recorded
    if given is not None:
        specs = parsed_specs(given)
        if [spec.name for spec in specs] != names[: len(specs)]:
            raise ValueError(
                f"inputs must be the arguments of construct in their order, {names}, "
                f"got {[spec.name for spec in specs]}"
            )
        return specs
    if known is None:
        return None
    return tuple(
        TensorSpec(name, _datatype_of_mindspore(each.dtype), tuple(each.shape), offsets.get(name))
        for name, each in zip(names, known, strict=False)
    )


def _datatype_of_mindspore(dtype: Any) -> str:
    name = str(dtype).lower()  # 'Int64'
    names = [str(each) for each in DATATYPES.values()]
    if name not in names:
        raise TypeError(f"dtype must be one of {names}, got {dtype}")
    return datatype_of(np.dtype(name))


def dynamic_tensor(spec: TensorSpec) -> Tensor:
    """Return the Tensor that describes an input for `Cell.set_inputs`.

    Example:
        >>> dynamic_tensor(TensorSpec("ids", "INT64", (-1, 26))).shape
        (-1, 26)
    """
    sizes = [None if size == -1 else size for size in spec.shape]
    dtype = ms.bool_ if spec.datatype == "BOOL" else getattr(ms, str(spec.dtype))
    return ms.Tensor(shape=sizes, dtype=dtype)
