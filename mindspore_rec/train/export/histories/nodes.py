# SPDX-License-Identifier: Apache-2.0
"""Nodes: builds ONNX nodes of the operator set `OPERATOR_SET`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["OPERATOR_SET", "Nodes"]

OPERATOR_SET = 12
"""Version of the operators: the first version whose Min and Max have integers."""

_END = np.iinfo(np.int64).max  # end of a slice that goes to the last element


class Nodes:
    """Builds the nodes of an ONNX graph; each method returns the name of the result.

    Args:
        prefix: beginning of the names of the nodes; each `Nodes` object of a model needs a
            different prefix.

    Attributes:
        made: the nodes.
    """

    def __init__(self, prefix: str) -> None:
        self.made: list[Any] = []
        self._prefix, self._names = prefix, 0

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output."""
        from onnx import helper

        name = self._new_name() if output is None else output
        self.made.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        return self.add("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def cast(self, x: str, dtype: Any) -> str:
        """Convert `x` to a NumPy dtype."""
        from onnx import helper

        return self.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def size(self, x: str, axis: int = 0) -> str:
        """Return the size of a dimension, int64 `[1]`."""
        return self.add("Gather", self.add("Shape", x), self.constant([axis]))

    def slice(self, x: str, start: str, end: str, axis: int = 0) -> str:
        """Return the elements `start:end` along an axis; `start` and `end` are int64 `[1]`."""
        return self.add("Slice", x, start, end, self.constant([axis]))

    def part(self, x: str, start: int, end: int = _END, axis: int = 0) -> str:
        """Return the elements `start:end` along an axis."""
        return self.slice(x, self.constant([start]), self.constant([end]), axis)

    def concat(self, *parts: str, axis: int = 0) -> str:
        """Join along an axis."""
        return self.add("Concat", *parts, axis=axis)

    def numbers(self, first: str, end: str) -> str:
        """Return the integers from `first` to `end` - 1; both are int64 `[1]`."""
        scalars = [self.add("Squeeze", each, axes=[0]) for each in (first, end)]
        step = self.constant(1)
        return self.add("Range", *scalars, step)

    def filled(self, shape: str, value: Any, dtype: Any = np.int64) -> str:
        """Return a tensor of shape `shape`, int64 `[dimensions]`; each element is `value`."""
        from onnx import numpy_helper

        array = numpy_helper.from_array(np.array([value], dtype))
        return self.add("ConstantOfShape", shape, value=array)

    def where(self, condition: str, x: str, y: str) -> str:
        """Select each element from x if the condition is True, and otherwise from y."""
        return self.add("Where", condition, x, y)

    def quotient_up(self, x: str, y: str) -> str:
        """Return x / y, rounded up; x and y are positive integers."""
        sum_ = self.add("Add", x, self.add("Sub", y, self.constant([1])))
        return self.add("Div", sum_, y)

    def row(self, x: str) -> str:
        """Reshape a tensor from `[n]` to `[1, n]`."""
        return self.add("Unsqueeze", x, axes=[0])

    def column(self, x: str) -> str:
        """Reshape a tensor from `[n]` to `[n, 1]`."""
        return self.add("Unsqueeze", x, axes=[1])

    def with_zeros(self, x: str, width: str, dtype: Any = np.float32) -> str:
        """Append a row of zeros to a tensor.

        Args:
            x: tensor `[n, ...]`.
            width: shape of a row, int64 `[dimensions - 1]`.
            dtype: NumPy dtype of x.
        """
        shape = self.concat(self.constant([1]), width)
        return self.concat(x, self.filled(shape, 0, dtype))

    def repeat(self, count: str, first: str, body: Callable[[Nodes, str], str]) -> str:
        """Run the body of a loop several times, and concatenate the rows that the runs return.

        Args:
            count: number of runs, int64 `[1]`.
            first: float32 `[0, width]`, the empty array to which the rows are appended.
            body: function that builds the body from new `Nodes` and the index of the run, int64
                `[1]`, counted from 0. The body may read the outputs of all nodes that were built
                before the body. `body` returns rows, float32 `[n, width]`.
        """
        from onnx import TensorProto, helper

        name = self._new_name()
        inner = Nodes(f"{name}/body")
        turn, going, rows = (f"{name}/{each}" for each in ("turn", "going", "rows"))
        made = body(inner, inner.add("Unsqueeze", turn, axes=[0]))
        outputs = [inner.add("Identity", going), inner.concat(rows, made)]
        kinds = (TensorProto.BOOL, TensorProto.FLOAT)
        graph = helper.make_graph(
            inner.made,
            f"{name}/graph",
            [
                helper.make_tensor_value_info(turn, TensorProto.INT64, []),
                helper.make_tensor_value_info(going, TensorProto.BOOL, []),
                helper.make_tensor_value_info(rows, TensorProto.FLOAT, [None, None]),
            ],
            [
                helper.make_tensor_value_info(output, kind, [] if k == 0 else [None, None])
                for k, (output, kind) in enumerate(zip(outputs, kinds, strict=True))
            ],
        )
        runs = self.add("Squeeze", count, axes=[0])
        return self.add("Loop", runs, "", first, output=name, body=graph)

    def _new_name(self) -> str:
        self._names += 1
        return f"{self._prefix}/{self._names}"
