# SPDX-License-Identifier: Apache-2.0
"""Joins matrices by columns, with a gradient also for matrices without rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.train.nn.fused.cell import module_of, native_operator, refusal_of

__all__ = ["JoinColumns", "join_columns"]

# The graph compiler refuses a `bprop` with a variable number of arguments.
_SOURCE = '''# SPDX-License-Identifier: Apache-2.0
"""A cell that joins {count} matrices; written by mindspore_rec."""

from mindspore import ops
from mindspore_rec.train.nn.join import JoinColumns


class JoinColumns{count}(JoinColumns):
    """Join of {count} matrices."""

    def construct(self, {names}):
        """Return the joined matrix."""
        return ops.concat(({names},), -1)

    def bprop(self, {names}, out, dout):
        """Return the gradients of the matrices."""
        return self.backward(self.count, {names}, dout)
'''


class JoinColumns(nn.Cell):
    """Concatenates matrices along the last dimension.

    MindSpore's own `concat` has no gradient for matrices without rows: in graph mode, the gradient
    ends the process or raises an error. A batch in which all histories are empty has such matrices.

    Args:
        count: number of matrices, at least 2.

    Inputs:
        Float32 Tensors `[..., width]`, with the same number of rows.

    Outputs:
        float32 Tensor `[..., sum of the widths]`.
    """

    def __init__(self, count: int) -> None:
        super().__init__(auto_prefix=False)
        self.matrices = count
        self.count = Tensor(np.zeros(count, np.int64))  # shape inference reads its shape
        self.backward = native_operator("MsrJoinColumnsGradient", count, refusal_of(count + 2))

    def __deepcopy__(self, memo: dict[int, Any]) -> JoinColumns:
        """Return another cell that joins matrices."""
        memo[id(self)] = copied = type(self)(self.matrices)
        return copied


def join_columns(count: int) -> nn.Cell:
    """Return a cell that joins `count` matrices by columns, or returns the only matrix.

    Example:
        >>> join_columns(2)(Tensor([[1.0], [2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]])).shape
        (2, 3)
    """
    return nn.Identity() if count == 1 else _class_of(count)(count)


@functools.cache
def _class_of(count: int) -> type[JoinColumns]:
    names = ", ".join(f"a{i}" for i in range(count))
    source = _SOURCE.format(count=count, names=names)
    module = module_of(f"mindspore_rec_join_columns_{count}", source)
    cell_class: type[JoinColumns] = getattr(module, f"JoinColumns{count}")
    return cell_class
