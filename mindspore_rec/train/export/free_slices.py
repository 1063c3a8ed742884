# SPDX-License-Identifier: Apache-2.0
"""Slices of an exported model along dynamic dimensions.

In the model that MindSpore exports, starts and ends of slices such as `x[:-1]` are numbers near the
exported size of x. This module replaces such starts and ends by indexes relative to the end of x.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from mindspore_rec.train.export.not_exportable import NotExportableError

__all__ = ["free_slices"]

_END = np.iinfo(np.int64).max
_LAST = (-1, 0)  # start and end that MindSpore exports for `x[-1]`; as a slice, it has no elements
_NEAR = 100

_Places = list[int]
_Change = Callable[[Any, _Places, _Places, _Places], tuple[_Places, _Places]]


def free_slices(model: Any, sizes: Collection[int]) -> None:
    """Change the starts and ends of slices so that the slices are right for all sizes.

    Args:
        model: the exported model, which is changed.
        sizes: sizes in the exported model that stand for dynamic sizes.

    Raises:
        NotExportableError: in a tensor of unknown shape, the start or end of a slice is near one of
            `sizes`.
    """
    import onnx

    _change_slices(model.graph, _mended)
    known = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        info.name: [size.dim_value for size in info.type.tensor_type.shape.dim]
        for info in (*known.input, *known.value_info, *known.output)
    }

    def from_end(
        node: Any, starts: _Places, ends: _Places, axes: _Places
    ) -> tuple[_Places, _Places]:
        shape = shapes.get(node.input[0], [])
        dims = [shape[axis] if shape else 0 for axis in axes]
        starts = [_from_end(*pair, sizes) for pair in zip(starts, dims, strict=True)]
        return starts, [_from_end(*pair, sizes) for pair in zip(ends, dims, strict=True)]

    _change_slices(model.graph, from_end)


def _change_slices(graph: Any, change: _Change) -> None:
    """Apply `change` to the starts and ends of all slices whose starts and ends are constants.

    Args:
        graph: graph of the model.
        change: function that takes the node, the starts, the ends and the axes, and returns new
            starts and ends.
    """
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Slice" and all(name in constants for name in node.input[1:]):
            starts, ends, axes = (constants[name].tolist() for name in node.input[1:4])
            for k, places in enumerate(change(node, starts, ends, axes), 1):
                if places != (starts, ends)[k - 1]:
                    node.input[k] = f"{node.output[0]}/{k}"
                    array = np.array(places, np.int64)
                    graph.initializer.append(numpy_helper.from_array(array, node.input[k]))


def _from_end(place: int, size: int, sizes: Collection[int]) -> int:
    """Return `place`, or a negative index for a place in the second half of a dynamic dimension.

    Args:
        place: start or end of a slice.
        size: exported size of the dimension, 0 if it is unknown.
        sizes: sizes in the exported model that stand for dynamic sizes.

    Raises:
        NotExportableError: the size is unknown, and `place` is near one of `sizes`.

    Example:
        >>> _from_end(1009, 1010, [1009]), _from_end(5, 1009, [1009]), _from_end(60, 64, [1009])
        (-1, 5, 60)
    """
    if size == 0 and any(abs(place - each) < _NEAR for each in sizes):
        raise NotExportableError(f"a slice up to {place} is for one batch size only")
    if size < min(sizes) // 2 or place <= size // 2:
        return place
    return _END if place >= size else place - size


def _mended(node: Any, starts: _Places, ends: _Places, axes: _Places) -> tuple[_Places, _Places]:
    """Return the starts and ends of a slice; correct the end that MindSpore exports for `x[-1]`."""
    pairs = zip(starts, ends, strict=True)
    return starts, [_END if pair == _LAST else pair[1] for pair in pairs]
