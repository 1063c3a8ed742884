# SPDX-License-Identifier: Apache-2.0
"""Repeats rows for the members of an ensemble, as one operator with a gradient."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn

from mindspore_rec.train.nn.fused.cell import native_operator, refusal_of

__all__ = ["RepeatedRows"]


class RepeatedRows(nn.Cell):
    """Repeats all rows once per member, and multiplies each repetition by the member's factors.

    Inputs:
        x: float32 Tensor `[B, ...]` with `width` floats per row.
        factors: float32 Tensor `[K, width]`.

    Outputs: float32 Tensor `[K * B, width]`: the rows for the first member, then the rows for the
        second member, and so on.

    Example:
        >>> rows = RepeatedRows()(Tensor([[5.0, 7.0]]), Tensor([[1.0, 2.0], [0.0, -1.0]]))
        >>> rows.asnumpy().tolist()
        [[5.0, 14.0], [0.0, -7.0]]
    """

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.forward = native_operator("MsrMemberRows", 1)
        self.backward = native_operator("MsrMemberRowsGradient", 2, refusal_of(3))

    def __deepcopy__(self, memo: dict[int, Any]) -> RepeatedRows:
        """Return a new `RepeatedRows`, which has its own operators."""
        memo[id(self)] = copied = RepeatedRows()
        return copied

    def construct(self, x: Tensor, factors: Tensor) -> Tensor:
        """Return the repeated rows."""
        return self.forward(x, factors)

    def bprop(self, x: Tensor, factors: Tensor, out: Tensor, dout: Tensor) -> Any:
        """Return the gradients of rows and factors."""
        return self.backward(x, factors, dout)
