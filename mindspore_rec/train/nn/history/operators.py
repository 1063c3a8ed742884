# SPDX-License-Identifier: Apache-2.0
"""Cells that run native operators over histories; each cell has its own gradient.

The operators are in `csrc/ops/history_ops.cc`. The first input of an operator is a constant that
contains the operator's settings as numbers. If an operator does not use an input, the input is a
constant with one element.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.nn.fused.cell import native_operator, refusal_of

__all__ = [
    "AddPlaces",
    "Attention",
    "FLOAT32_ONLY",
    "GatedAttention",
    "HistoryLayer",
    "HistoryOperator",
    "NO_BIAS",
    "NO_TIMES",
    "NormRows",
    "Residual",
    "RowNorm",
    "check_history",
]

NO_BIAS = Tensor(np.zeros(1, np.float32))
"""Stands for a bias that an operator does not have."""
NO_TIMES = Tensor(np.zeros(1, np.int64))
"""Stands for times that an operator does not read."""


_EPSILON = 1e-5  # is added to variances
FLOAT32_ONLY = "layers over histories read float32: use amp_level of RecModel, not to_float"
"""Message of the layers' errors."""


class HistoryOperator(nn.Cell):
    """Base class of cells with operators; copies of a cell share its constants and operators."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> HistoryOperator:
        """Return a new cell that shares this cell's operators."""
        memo[id(self)] = copied = copy.copy(self)
        return copied


class HistoryLayer(nn.Cell):
    """Base class of layers that run operators of this module; these operators read only float32.

    The graph compiler compiles properties of a cell's own class, but calls properties of a base
    class in Python. This base class contains the properties that the compiler cannot compile.
    """

    @property
    def is_half(self) -> bool:
        """True if `to_float` or MindSpore's mixed precision has set an operator to half precision.

        In half precision, MindSpore would cast the inputs and the constants of the operator.
        """
        operators = (
            cell for _, cell in self.cells_and_names() if isinstance(cell, HistoryOperator)
        )
        return any(
            flags.get("fp16") or flags.get("bf16") for flags in (o.get_flags() for o in operators)
        )


class Attention(HistoryOperator):
    """Causal softmax attention over the lists of a batch; see `csrc/sequence/attention.h`.

    Args:
        heads: number of heads.
        head_dim: width of a head.

    Inputs:
        - **qkv** (Tensor): float32 `[N, 3 * heads * head_dim]`: queries, keys, values of all heads.
        - **offsets** (Tensor): int64 `[B + 1]`.

    Outputs:
        float32 Tensor `[N, heads * head_dim]`.
    """

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.form = Tensor(np.array([heads, 0, 0, 0], np.int64))
        self.scales = Tensor(np.array([head_dim**-0.5, 1, 0], np.float32))
        self.no_times, self.no_bias = NO_TIMES, NO_BIAS
        self.forward = native_operator("MsrHistoryAttention", 1, raises_at_once=True)
        self.backward = native_operator("MsrHistoryAttentionGradient", 3, refusal_of(8))

    def construct(self, qkv: Tensor, offsets: Tensor) -> Tensor:
        """Return the attention-weighted sums of the values."""
        return self.forward(
            self.form, self.scales, qkv, offsets, self.no_times, self.no_bias, self.no_bias
        )

    def bprop(self, qkv: Tensor, offsets: Tensor, out: Any, dout: Any) -> tuple[Tensor, Tensor]:
        """Return the gradients of `qkv` and `offsets`."""
        gradients = self.backward(
            self.form, self.scales, qkv, offsets, self.no_times, self.no_bias, self.no_bias, dout
        )
        return gradients[0], ops.zeros_like(offsets)


class GatedAttention(HistoryOperator):
    """The part of an HSTU block between the two linear layers; see `csrc/sequence/hstu.h`.

    Args:
        heads: number of heads.
        weight_scale: factor by which SiLU(score) is multiplied.
        by_time: whether to add to the scores a bias that depends on time differences.

    Inputs:
        - **projected** (Tensor): float32 `[N, 4 * width]`: queries, keys, values, gates.
        - **offsets** (Tensor): int64 `[B + 1]`.
        - **times** (Tensor): int64 `[N]`; `NO_TIMES` if the operator does not read times.
        - **by_distance** (Tensor): float32 `[distances]`.
        - **by_time** (Tensor): float32 `[buckets]`; `NO_BIAS` without times.
        - **scale**, **shift** (Tensor): float32 `[width]`, parameters of the normalization.

    Outputs:
        Tuple of the output (float32 `[N, width]`) and values for the gradient.
    """

    def __init__(self, heads: int, weight_scale: float, by_time: bool) -> None:
        super().__init__()
        self.form = Tensor(np.array([heads, 1, 1, by_time], np.int64))
        self.scales = Tensor(np.array([1, weight_scale, _EPSILON], np.float32))
        self.forward = native_operator("MsrHstu", 2, raises_at_once=True)
        self.backward = native_operator("MsrHstuGradient", 5, refusal_of(11))

    def construct(
        self,
        projected: Tensor,
        offsets: Tensor,
        times: Tensor,
        by_distance: Tensor,
        by_time: Tensor,
        scale: Tensor,
        shift: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the gated attention, and values for the gradient."""
        return self.forward(
            self.form, self.scales, projected, offsets, times, by_distance, by_time, scale, shift
        )

    def bprop(
        self,
        projected: Tensor,
        offsets: Tensor,
        times: Tensor,
        by_distance: Tensor,
        by_time: Tensor,
        scale: Tensor,
        shift: Tensor,
        out: Any,
        dout: Any,
    ) -> Any:
        """Return the gradients of the inputs."""
        gradients = self.backward(
            self.form,
            self.scales,
            projected,
            offsets,
            times,
            by_distance,
            by_time,
            scale,
            shift,
            out[1],
            dout[0],
        )
        still = ops.zeros_like(offsets), ops.zeros_like(times)
        return (gradients[0], *still, *gradients[1:])


class AddPlaces(HistoryOperator):
    """Adds a row of `table` to each value, by position or time; see `csrc/sequence/places.h`.

    Args:
        by_time: True to select rows of `table` by buckets of time differences, False to select rows
            by distance.

    Inputs:
        - **values** (Tensor): float32 `[N, dim]`.
        - **offsets** (Tensor): int64 `[B + 1]`.
        - **times** (Tensor): int64 `[N]`; `NO_TIMES` if the operator does not read times.
        - **table** (Tensor): float32 `[places, dim]`.

    Outputs:
        float32 Tensor `[N, dim]`.
    """

    def __init__(self, by_time: bool) -> None:
        super().__init__()
        self.form = Tensor(np.array([by_time], np.int64))
        self.forward = native_operator("MsrAddPlaces", 1, raises_at_once=True)
        self.backward = native_operator("MsrAddPlacesGradient", 1, refusal_of(5))

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor, table: Tensor) -> Tensor:
        """Add to each row of `values` the row of `table` for the value's position or time."""
        return self.forward(self.form, values, offsets, times, table)

    def bprop(
        self, values: Tensor, offsets: Tensor, times: Tensor, table: Tensor, out: Any, dout: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of the inputs."""
        of_table = self.backward(self.form, dout, offsets, times, table)
        return dout, ops.zeros_like(offsets), ops.zeros_like(times), of_table


class Residual(HistoryOperator):
    """Adds two matrices of the same shape, and passes the gradient of the sum to both matrices.

    MindSpore's own addition also accepts inputs of different shapes. If the number of rows is not
    known before the step, the gradient of MindSpore's addition computes an additional sum over the
    rows for each input.

    Inputs:
        - **x** (Tensor): float32 `[N, width]`.
        - **y** (Tensor): float32 `[N, width]`.

    Outputs:
        float32 Tensor `[N, width]`.
    """

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum."""
        return x + y

    def bprop(self, x: Tensor, y: Tensor, out: Any, dout: Any) -> tuple[Tensor, Tensor]:
        """Return the gradients of the inputs."""
        return dout, dout


class NormRows(HistoryOperator):
    """The operator of `RowNorm`."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = Tensor(np.array([epsilon], np.float32))
        self.forward = native_operator("MsrNormRows", 1)
        self.backward = native_operator("MsrNormRowsGradient", 3, refusal_of(4))

    def construct(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Return the normalized rows."""
        return self.forward(self.epsilon, x, scale, shift)

    def bprop(
        self, x: Tensor, scale: Tensor, shift: Tensor, out: Any, dout: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of the inputs."""
        gradients = self.backward(self.epsilon, x, scale, dout)
        return gradients[0], gradients[1], gradients[2]


class RowNorm(nn.Cell):
    """Normalizes each row by its mean and variance in one operator, like `nn.LayerNorm((width,))`.

    Args:
        width: width of a row.
        epsilon: number that is added to the variance. Default: 1e-5.

    Inputs:
        x: float32 Tensor `[N, width]`.

    Outputs:
        float32 Tensor `[N, width]`.

    Attributes:
        gamma: scales of the normalized columns, a Parameter `[width]`.
        beta: Parameter `[width]`, added to the scaled columns.
    """

    def __init__(self, width: int, epsilon: float = _EPSILON) -> None:
        super().__init__()
        self.gamma = Parameter(Tensor(np.ones(width, np.float32)), name="gamma")
        self.beta = Parameter(Tensor(np.zeros(width, np.float32)), name="beta")
        self.norm = NormRows(epsilon)

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized rows."""
        return self.norm(x, self.gamma, self.beta)


def check_history(values: Tensor, offsets: Tensor, dim: int) -> None:
    """Check the inputs of a cell over histories; in a graph, only the compilation runs the check.

    Args:
        values: the values of all lists.
        offsets: the offsets of the lists.
        dim: required width of `values`.

    Raises:
        ValueError: the shape of `values` is not `[N, dim]`, or the shape of `offsets` is not `[B +
            1]`.

    Example:
        >>> check_history(Tensor([[1.0, 2.0]]), Tensor([0, 1]), 3)
        Traceback (most recent call last):
        ...
        ValueError: values must be [N, 3], got (1, 2)
    """
    if values.ndim != 2 or values.shape[1] != dim:
        raise ValueError(f"values must be [N, {dim}], got {values.shape}")
    if offsets.ndim != 1:
        raise ValueError(f"offsets must be [B + 1], got {offsets.shape}")
