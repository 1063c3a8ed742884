# SPDX-License-Identifier: Apache-2.0
"""Compares and restores the contents of lists, dicts, sets, arrays and objects after a trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor, nn, ops

__all__ = ["Contents", "contents_of", "is_object", "is_of_library"]

_OPAQUE = (nn.Cell, Tensor, ops.Primitive, type, FunctionType, MethodType, ModuleType)
_NETWORKS = "mindspore_rec.train.models."
_MOST_ENTRIES = 100
_MOST_BYTES = 1 << 16
_DEPTH = 4


def is_of_library(module: str) -> bool:
    """Return whether a module belongs to MindSpore or to this package.

    The function returns False for modules of `mindspore_rec.models`, because networks in these
    modules are fused like a user's networks.

    Example:
        >>> is_of_library("mindspore.nn"), is_of_library("shop.net")
        (True, False)
        >>> is_of_library("mindspore_rec.train.models.dcn")
        False
    """
    is_of_network = module.startswith(_NETWORKS)
    return module.partition(".")[0] in ("mindspore", "mindspore_rec") and not is_of_network


def is_object(value: Any) -> bool:
    """Return whether a value has attributes and its class is from the user's code.

    Example:
        >>> is_object(nn.ReLU()), is_object([1])
        (False, False)
    """
    if isinstance(value, _OPAQUE) or not hasattr(value, "__dict__"):
        return False
    return not is_of_library(type(value).__module__)


class Contents(NamedTuple):
    """Contents of a list, dict, set, array or object before a trace."""

    container: Any
    before: Any
    kind: str

    def are_changed(self) -> bool:
        """Return whether the container has changed since the start of the trace."""
        return _identities(self.container) != _identities(self.before)

    def restore(self) -> None:
        """Restore the contents that the container had before the trace."""
        if not self.are_changed():
            return
        if isinstance(self.container, np.ndarray):
            self.container[...] = self.before
        elif isinstance(self.container, dict):  # a Counter's own `update` would add
            dict.clear(self.container)
            dict.update(self.container, self.before)
        else:
            self.container.clear()
            extends = isinstance(self.container, (list, deque))
            (self.container.extend if extends else self.container.update)(self.before)


def contents_of(value: Any, depth: int = _DEPTH) -> Iterator[Contents]:
    """Yield the `Contents` of a value and of all values inside the value, up to a depth of 4.

    Arrays of more than 64 KiB and values inside a container of more than 100 entries are skipped.

    Example:
        >>> [each.before for each in contents_of({"calls": [1, 2]})]
        [{'calls': [1, 2]}, [1, 2]]
    """
    if depth == 0 or isinstance(value, _OPAQUE):
        return
    inside: Any = ()
    if isinstance(value, np.ndarray):
        if value.nbytes <= _MOST_BYTES and not value.dtype.hasobject:
            yield Contents(value, value.copy(), "an array")
    elif isinstance(value, dict):
        yield Contents(value, dict(value), "a list, dict or set")
        inside = value.values()
    elif isinstance(value, (list, deque)):
        yield Contents(value, list(value), "a list, dict or set")
        inside = value
    elif isinstance(value, set):
        yield Contents(value, set(value), "a list, dict or set")
    elif isinstance(value, tuple):
        inside = value
    elif is_object(value):
        yield Contents(vars(value), dict(vars(value)), "an object")
        inside = vars(value).values()
    if len(inside) <= _MOST_ENTRIES:
        for each in [*inside]:
            yield from contents_of(each, depth - 1)


def _identities(contents: Any) -> Any:
    if isinstance(contents, np.ndarray):
        return contents.tobytes()
    if isinstance(contents, dict):
        return {name: id(value) for name, value in contents.items()}
    return {*contents} if isinstance(contents, set) else [id(each) for each in contents]
