# SPDX-License-Identifier: Apache-2.0
"""Joins matrices by columns, with a gradient even for matrices without rows."""

from __future__ import annotations

import functools
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.train.nn.fused.cell import (
    argument_names,
    module_of,
    native_operator,
    refusal_of,
)
from mindspore_rec.train.nn.history.operators import HistoryOperator

__all__ = ["JoinColumns", "join_columns"]

# The graph compiler refuses a `bprop` with a variable number of arguments.
_SOURCE = '''# SPDX-License-Identifier: Apache-2.0
"""A cell that joins {count} matrices; written by mindspore_rec."""

from mindspore_rec.train.nn.join import JoinColumns


class JoinColumns{count}(JoinColumns):
    """Join of {count} matrices."""

    def construct(self, {names}):
        """Return the joined matrix."""
        return self.concat(({names},))

    def bprop(self, {names}, out, dout):
        """Return the gradients of the matrices."""
        return self.gradients_of(({names},), dout)
'''


class JoinColumns(HistoryOperator):
    """Concatenates matrices along the last dimension.

    MindSpore's own `concat` has no gradient for matrices without rows: in graph mode, the gradient
    ends the process or raises an error. If all histories of a batch are empty, the matrices have no
    rows.

    Args:
        count: number of matrices, at least 2.

    Inputs:
        Tensors `[..., width]` of one floating-point type, with the same number of rows.

    Outputs:
        Tensor `[..., sum of the widths]` of the inputs' type.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = Tensor(np.zeros(count, np.int64))  # shape inference reads its shape
        self.concat = ops.Concat(-1)
        self.backward = native_operator("MsrJoinColumnsGradient", count, refusal_of(count + 2))

    def gradients_of(self, matrices: Any, dout: Tensor) -> Any:
        """Return the gradients of the matrices; the gradient operator computes in float32."""
        if dout.dtype == ms.float32:
            return self.backward(self.count, *matrices, dout)
        wide: Any = ()
        for matrix in matrices:
            wide += (ops.cast(matrix, ms.float32),)
        gradients = self.backward(self.count, *wide, ops.cast(dout, ms.float32))
        narrow: Any = ()
        for gradient in gradients:
            narrow += (ops.cast(gradient, dout.dtype),)
        return narrow


def join_columns(count: int) -> nn.Cell:
    """Return a cell that joins `count` matrices by columns; a single matrix is returned unchanged.

    Example:
        >>> join_columns(2)(Tensor([[1.0], [2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]])).shape
        (2, 3)
    """
    return nn.Identity() if count == 1 else _class_of(count)(count)


@functools.cache
def _class_of(count: int) -> type[JoinColumns]:
    source = _SOURCE.format(count=count, names=argument_names(count))
    module = module_of(f"mindspore_rec_join_columns_{count}", source)
    cell_class: type[JoinColumns] = getattr(module, f"JoinColumns{count}")
    return cell_class
