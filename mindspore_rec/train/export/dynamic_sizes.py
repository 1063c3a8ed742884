# SPDX-License-Identifier: Apache-2.0
"""Dynamic sizes of an exported model: the number of rows, and the length of each history array.

MindSpore exports a model for one size of each input. The exported sizes are unusual numbers:
`BATCH` for the number of rows, and another prime for the number of values of each history. This
module replaces the exported sizes by dynamic sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.train.export.free_slices import free_slices
from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx_graph import names_read, replace_nodes

__all__ = ["BATCH", "exported_sizes", "free_sizes"]

BATCH = 1009  # a prime; no dimension of a network is a multiple of it


def exported_sizes(specs: Sequence[TensorSpec]) -> dict[str, int]:
    """Return the size of the first dimension of each input in the exported model.

    Example:
        >>> specs = [TensorSpec("a", "FP32", (-1,), "b"), TensorSpec("b", "INT64", (-1,))]
        >>> exported_sizes(specs)
        {'a': 1013, 'b': 1009}
    """
    groups = list(dict.fromkeys(spec.offsets for spec in specs if spec.offsets is not None))
    sizes = dict(zip(groups, _primes_above(BATCH, len(groups)), strict=True))
    return {spec.name: BATCH if spec.offsets is None else sizes[spec.offsets] for spec in specs}


def _primes_above(least: int, count: int) -> list[int]:
    primes: list[int] = []
    number = least + 1
    while len(primes) < count:
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            primes.append(number)
        number += 1
    return primes


def free_sizes(model: Any, sizes: Mapping[str, int], parameters: Collection[str]) -> None:
    """Change a model so that the first dimension of its inputs may have any size.

    Args:
        model: the exported model.
        sizes: size of the first dimension of each input in the exported model.
        parameters: names of the dense parameters, which keep their sizes.

    Raises:
        NotExportableError: the model uses one of `sizes` as a number that is not part of a shape.
    """
    _Sizes(model, sizes).free(parameters)


class _Sizes:
    """Changes the sizes in one exported model."""

    def __init__(self, model: Any, sizes: Mapping[str, int]) -> None:
        self.model, self.graph = model, model.graph
        self.inputs: dict[int, str] = {}  # an input of each size
        for name, size in sizes.items():
            self.inputs.setdefault(size, name)

    def free(self, parameters: Collection[str]) -> None:
        """Make fixed sizes variable, in shapes, constants, slices, inputs and outputs."""
        import onnx
        from onnx import numpy_helper

        graph = self.graph
        free_slices(self.model, self.inputs)
        read = {name for node in graph.node for name in names_read(node)}
        shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
        nodes: list[Any] = []
        for tensor in list(graph.initializer):
            if tensor.name in parameters or tensor.name not in read:
                continue
            value = numpy_helper.to_array(tensor)
            if tensor.name in shapes:
                tensor.CopyFrom(numpy_helper.from_array(self._freed(value), tensor.name))
            elif made := self._made_by_size(tensor.name, value):
                graph.initializer.remove(tensor)
                nodes += made
        for node in graph.node:
            values = [each.t for each in node.attribute if each.type == onnx.AttributeProto.TENSOR]
            if node.op_type != "Constant" or not values:
                nodes.append(node)
                continue
            name, value = node.output[0], numpy_helper.to_array(values[0])
            if name in shapes:
                values[0].CopyFrom(numpy_helper.from_array(self._freed(value), values[0].name))
                nodes.append(node)
            else:
                nodes += self._made_by_size(name, value) or [node]
        for node in nodes:
            for attribute in node.attribute:
                if any(self._varies(each) for each in (attribute.i, *attribute.ints)):
                    raise NotExportableError(f"{node.op_type} is for one batch size only")
        replace_nodes(graph, nodes)
        for info in (*graph.input, *graph.output):
            for size in info.type.tensor_type.shape.dim:
                if self._varies(size.dim_value):
                    size.dim_param = "batch" if size.dim_value == BATCH else ""
        del graph.value_info[:]

    def _varies(self, size: int) -> bool:
        return size != 0 and any(size % each == 0 for each in self.inputs)

    def _freed(self, shape: np.ndarray) -> np.ndarray:
        at = [i for i, size in enumerate(shape.tolist()) if self._varies(size)]
        if len(at) > 1 or (at and -1 in shape):
            raise NotExportableError(f"a Reshape to {shape.tolist()} has the batch size twice")
        return np.where(np.isin(np.arange(len(shape)), at), -1, shape)

    def _made_by_size(self, name: str, value: np.ndarray) -> list[Any]:
        """Return nodes that compute the value of a constant from an input's size.

        If the constant does not depend on an input's size, return [].

        The constant is the size itself, or a tensor that repeats one row for each row of the input.

        Raises:
            NotExportableError: the constant depends on the size, but no nodes can compute the
                constant from the size.
        """
        whole = value.dtype.kind in "iu"
        if whole and value.shape == (1,) and int(value[0]) in self.inputs:
            return self._size(name, int(value[0]), value.dtype)
        if value.ndim and value.shape[0] in self.inputs and (value == value[:1]).all():
            return self._repeated(name, value)
        integers = whole and any(self._varies(each) for each in np.unique(value).tolist())
        if integers or any(self._varies(size) for size in value.shape):
            raise NotExportableError(f"the constant {name} is for one batch size only")
        return []

    def _size(self, name: str, size: int, dtype: Any) -> list[Any]:
        from onnx import helper

        wide = f"{name}/wide"
        to = helper.np_dtype_to_tensor_dtype(dtype)
        return [*self._rows(wide, size), helper.make_node("Cast", [wide], [name], to=to)]

    def _repeated(self, name: str, value: np.ndarray) -> list[Any]:
        from onnx import helper

        shape = [f"{name}/batch", f"{name}/rest"]
        return [
            _constant(f"{name}/row", value[:1]),
            _constant(f"{name}/rest", np.array(value.shape[1:], np.int64)),
            *self._rows(f"{name}/batch", value.shape[0]),
            helper.make_node("Concat", shape, [f"{name}/shape"], axis=0),
            helper.make_node("Expand", [f"{name}/row", f"{name}/shape"], [name]),
        ]

    def _rows(self, name: str, size: int) -> list[Any]:
        """Return nodes that compute the size of an input's first dimension, int64 `[1]`."""
        from onnx import helper

        return [
            _constant(f"{name}/zero", np.array([0], np.int64)),
            helper.make_node("Shape", [self.inputs[size]], [f"{name}/of"]),
            helper.make_node("Gather", [f"{name}/of", f"{name}/zero"], [name]),
        ]


def _constant(name: str, array: np.ndarray) -> Any:
    from onnx import helper, numpy_helper

    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
