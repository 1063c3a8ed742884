# SPDX-License-Identifier: Apache-2.0
"""Register `cell[key]`, `cell[key] = value` and `key in cell` with the graph compiler.

The graph compiler of MindSpore 2.10 treats a Cell as a Function. Without a registration, the
compiler silently drops `cell[key] = value`, and runs `cell[key]` in Python, out of order. With the
registration, the compiler compiles `cell[key]`, `cell[key] = value` and `key in cell` to calls of
the Cell's methods `__getitem__`, `__setitem__` and `__contains__`, as in Python. The registration
applies to every Cell.
"""

from __future__ import annotations

from typing import Any

from mindspore.ops.composite.multitype_ops import getitem, in_, not_in_, setitem


@getitem.register("Function", "Tensor")
def _cell_getitem(cell: Any, key: Any) -> Any:
    return cell.__getitem__(key)


@setitem.register("Function", "Tensor", "Tensor")
@setitem.register("Function", "Tensor", "Number")
def _cell_setitem(cell: Any, key: Any, value: Any) -> Any:
    cell.__setitem__(key, value)
    return cell  # the compiler assigns the returned value to the name on the left


@in_.register("Tensor", "Function")
def _tensor_in_cell(key: Any, cell: Any) -> Any:
    return cell.__contains__(key)


@not_in_.register("Tensor", "Function")
def _tensor_not_in_cell(key: Any, cell: Any) -> Any:
    return cell.__contains__(key).logical_not()
