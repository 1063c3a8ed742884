# SPDX-License-Identifier: Apache-2.0
"""Cells for attention with one candidate per list; they run native operators and gradients.

The operators are in `csrc/ops/history_ops.cc`, the computations in `csrc/sequence/pooling.h`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Tensor, ops

from mindspore_rec.train.nn.fused.cell import native_operator, refusal_of
from mindspore_rec.train.nn.history.operators import HistoryOperator

__all__ = ["AddRows", "PairValues", "PoolValues"]


class PairValues(HistoryOperator):
    """Appends to each value the product of the value and the list's candidate.

    Inputs:
        - **candidate** (Tensor): float32 `[B, dim]`.
        - **values** (Tensor): float32 `[N, dim]`.
        - **offsets** (Tensor): int64 `[B + 1]`.

    Outputs:
        float32 Tensor `[N, 2 * dim]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forward = native_operator("MsrPairValues", 1, raises_at_once=True)
        self.backward = native_operator("MsrPairValuesGradient", 2, refusal_of(4))

    def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the pairs."""
        return self.forward(candidate, values, offsets)

    def bprop(
        self, candidate: Tensor, values: Tensor, offsets: Tensor, out: Any, dout: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of the inputs."""
        gradients = self.backward(candidate, values, offsets, dout)
        return gradients[0], gradients[1], ops.zeros_like(offsets)


class AddRows(HistoryOperator):
    """Adds one row per list, from another matrix, to all rows of the list.

    Inputs:
        - **x** (Tensor): float32 `[N, width]`.
        - **rows** (Tensor): float32 `[B, width]`.
        - **offsets** (Tensor): int64 `[B + 1]`.

    Outputs:
        float32 Tensor `[N, width]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forward = native_operator("MsrAddRows", 1, raises_at_once=True)
        self.backward = native_operator("MsrAddRowsGradient", 1, refusal_of(3))

    def construct(self, x: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
        """Return the sums."""
        return self.forward(x, rows, offsets)

    def bprop(
        self, x: Tensor, rows: Tensor, offsets: Tensor, out: Any, dout: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of the inputs."""
        return dout, self.backward(dout, rows, offsets), ops.zeros_like(offsets)


class PoolValues(HistoryOperator):
    """Computes the weighted sum of each list's values.

    Args:
        softmax: if True, the weights are the softmax of each list's scores; otherwise, the weights
            are the scores.

    Inputs:
        - **scores** (Tensor): float32 `[N, 1]`.
        - **values** (Tensor): float32 `[N, dim]`.
        - **offsets** (Tensor): int64 `[B + 1]`.
        - **candidate** (Tensor): float32 `[B, dim]`, of which only the shape is read.

    Outputs:
        Tuple of the sums, float32 `[B, dim]`, and values for the gradient.
    """

    def __init__(self, softmax: bool) -> None:
        super().__init__()
        self.form = Tensor(np.array([softmax], np.int64))
        self.forward = native_operator("MsrPoolValues", 2, raises_at_once=True)
        self.backward = native_operator("MsrPoolValuesGradient", 2, refusal_of(5))

    def construct(
        self, scores: Tensor, values: Tensor, offsets: Tensor, candidate: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the sums, and values for the gradient."""
        return self.forward(self.form, scores, values, offsets, candidate)

    def bprop(
        self,
        scores: Tensor,
        values: Tensor,
        offsets: Tensor,
        candidate: Tensor,
        out: Any,
        dout: Any,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of the inputs."""
        gradients = self.backward(self.form, out[1], values, offsets, dout[0])
        still = ops.zeros_like(offsets), ops.zeros_like(candidate)
        return gradients[0], gradients[1], still[0], still[1]
