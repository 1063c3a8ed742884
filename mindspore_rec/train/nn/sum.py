# SPDX-License-Identifier: Apache-2.0
"""Sum: the sum of several inputs with the same width."""

from __future__ import annotations

from mindspore import Tensor

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.inputs import check_inputs, widened
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import Columns, Program

__all__ = ["Sum"]


class Sum(FusedLayer):
    r"""Adds several inputs from left to right, for example the logits of a network's branches.

    .. math::
        y = (x_1 + x_2) + \dots + x_n

    In a `FusedGraph` the sum is part of the fused operator; outside a `FusedGraph`, MindSpore's
    operators compute the sum.

    Args:
        inputs: number of inputs n, 1 to 65536.
        width: floats per row of each input, 1 to 65536. Default: 1.

    Inputs:
        n float32 Tensors `[B, ...]`, each with `width` floats per row.

    Outputs:
        float32 Tensor `[B, width]`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or the number of
            inputs is wrong.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec.nn import Sum
        >>> Sum(2)(Tensor([[1.0], [2.0]], ms.float32), Tensor([[3.0], [4.0]], ms.float32)).asnumpy()
        array([[4.],
               [6.]], dtype=float32)
    """

    def __init__(self, inputs: int, width: int = 1) -> None:
        super().__init__("float32")
        width = check_int("width", width, 1, 1 << 16)
        self.in_features = (width,) * check_int("inputs", inputs, 1, 1 << 16)
        self.out_features = width
        self._fuse()

    def construct(self, *inputs: Tensor) -> Tensor:
        """Return the sum."""
        check_inputs(inputs, self.in_features)
        total = widened(inputs[0]).reshape((-1, self.out_features))
        for i in range(1, len(self.in_features)):
            total = total + widened(inputs[i]).reshape((-1, self.out_features))
        return total

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add this layer to a program, and return the sum's columns."""
        return program.sum_groups(x, self.out_features, output)
