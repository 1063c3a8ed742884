# SPDX-License-Identifier: Apache-2.0
"""TargetAttention: pools a history by an MLP on the candidate and each value, as in DIN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import XavierUniform, Zero, initializer

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.train.nn.dice import Dice, PReLU
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import Columns, Program
from mindspore_rec.train.nn.history.operators import HistoryOperator, check_history
from mindspore_rec.train.nn.history.pooling import AddRows, PairValues, PoolValues
from mindspore_rec.train.nn.mlp import MLP, check_hidden

__all__ = ["TargetAttention"]

_MOST_UNITS = 1 << 16


class TargetAttention(nn.Cell):
    r"""Pools each history by weights that depend on the candidate, as in DIN.

    .. math::
        y_b = \sum_j a(c_b, v_j)\, v_j, \quad
        a(c, v) = \text{MLP}([c, v, c - v, c \odot v])

    The sum runs over the values of history b; the sum over an empty history is 0. The weights have
    no softmax by default, as in the paper, so the vector of a long history of similar values has a
    large norm.

    The histories of a batch are concatenated without padding. The computing time is proportional to
    the number of values. The joined input of the MLP is never stored. The first layer is linear in
    the candidate, the value and their product. So two products, one over the batch and one over the
    values, replace the product over the joined input. In training, Dice normalizes by the moments
    of all values of the batch, which contain no padding.

    Results are identical bit for bit for any number of threads. The cell runs on the CPU.

    Source: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction" (DIN), KDD 2018,
    https://arxiv.org/abs/1706.06978. The difference c - v comes from the program of the paper's
    authors.

    Args:
        embedding_dim: width of a candidate and of a value, 1 to 8192.
        hidden: widths of the hidden layers of the MLP, at least one layer. Default: (80, 40).
        activation: activation of the hidden layers, 'dice' or 'prelu'. Default: 'dice'.
        softmax: whether the weights are the softmax of the MLP's outputs over each history.
            Default: False.

    Inputs:
        - **candidate** (Tensor): float32 `[B, embedding_dim]`.
        - **values** (Tensor): float32 `[N, embedding_dim]`, the values of all lists.
        - **offsets** (Tensor): int64 `[B + 1]`: list i is `values[offsets[i]:offsets[i + 1]]`. A
          list may be empty.

    Outputs:
        float32 Tensor `[B, embedding_dim]`.

    Attributes:
        out_features: width of the output, `embedding_dim`.
        weight: weights of the first layer, a Parameter `[hidden[0], 4 * embedding_dim]`, for the
            candidate, the value, the difference and the product.
        bias: Parameter `[hidden[0]]` of the first layer.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or an input has the
            wrong shape.
        RuntimeError: `offsets` do not begin with 0, decrease, or do not end with N, or the numbers
            of lists and candidates differ.

    Supported platforms:
        ``CPU``

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import TargetAttention
        >>> pool = TargetAttention(8)
        >>> candidate = Tensor(np.ones((3, 8), np.float32))
        >>> values = Tensor(np.ones((5, 8), np.float32))
        >>> pool(candidate, values, Tensor(np.array([0, 3, 3, 5]))).shape
        (3, 8)
    """

    def __init__(
        self,
        embedding_dim: int,
        hidden: Sequence[int] = (80, 40),
        activation: str = "dice",
        softmax: bool = False,
    ) -> None:
        super().__init__()
        self.dim = self.out_features = check_int("embedding_dim", embedding_dim, 1, 8192)
        hidden = check_hidden(hidden, _MOST_UNITS)
        if not hidden:
            raise ValueError("hidden must have at least one layer")
        check_one_of("activation", activation, ("dice", "prelu"))
        if not isinstance(softmax, bool):
            raise TypeError(f"softmax must be a bool, got {softmax!r}")
        kind = Dice if activation == "dice" else PReLU
        first = initializer(XavierUniform(), (hidden[0], 4 * embedding_dim)).init_data()
        self.weight = Parameter(first, name="weight")
        self.bias = Parameter(initializer(Zero(), (hidden[0],)).init_data(), name="bias")
        self.split = _Weights(embedding_dim)
        self.pair = PairValues()
        self.of_pairs = _Product(2 * embedding_dim, hidden[0])
        self.of_candidates = _Product(embedding_dim, hidden[0])
        self.add_candidates = AddRows()
        self.activation = kind(hidden[0])
        layers: list[nn.Cell] = []
        for width, units in zip(hidden, hidden[1:], strict=False):
            layers += [MLP(width, (), out_features=units), kind(units)]
        self.layers = nn.SequentialCell([*layers, MLP(hidden[-1], (), out_features=1)])
        self.pool = PoolValues(softmax)

    def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the weighted sums of values."""
        check_history(values, offsets, self.dim)
        if candidate.ndim != 2 or candidate.shape[1] != self.dim:
            raise ValueError(f"candidate must be [B, {self.dim}], got {candidate.shape}")
        of_pair, of_candidate = self.split(self.weight)
        x = self.of_pairs(self.pair(candidate, values, offsets), of_pair)
        by_list = self.of_candidates(candidate, of_candidate) + self.bias
        x = self.activation(self.add_candidates(x, by_list, offsets))
        return self.pool(self.layers(x), values, offsets, candidate)[0]


class _Weights(HistoryOperator):
    r"""Splits the weights of the first layer into weights of the pairs and of the candidates.

    .. math::
        W [c, v, c - v, c \odot v] = (W_c + W_d)\, c + [W_v - W_d, W_p]\, [v, c \odot v]

    The cell defines its gradient, which takes half as many operators as MindSpore's gradient.

    Args:
        dim: width of a value.

    Inputs:
        - **weight** (Tensor): float32 `[units, 4 * dim]`.

    Outputs:
        Tuple of float32 Tensors `[units, 2 * dim]` and `[units, dim]`.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def construct(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of the pairs and of the candidates."""
        dim = self.dim
        of_candidate, of_value = weight[:, :dim], weight[:, dim : 2 * dim]
        of_difference, of_product = weight[:, 2 * dim : 3 * dim], weight[:, 3 * dim :]
        pairs = ops.concat((of_value - of_difference, of_product), 1)
        return pairs, of_candidate + of_difference

    def bprop(self, weight: Tensor, out: Any, dout: Any) -> tuple[Tensor]:
        """Return the gradient of the weights."""
        of_value, of_product = dout[0][:, : self.dim], dout[0][:, self.dim :]
        return (ops.concat((dout[1], of_value, dout[1] - of_value, of_product), 1),)


class _Product(FusedLayer):
    """Product of rows and a weight that the caller passes, as one operator.

    Args:
        width: width of a row.
        units: number of rows of the weight.

    Inputs:
        - **x** (Tensor): float32 `[N, width]`.
        - **weight** (Tensor): float32 `[units, width]`.

    Outputs:
        float32 Tensor `[N, units]`.
    """

    def __init__(self, width: int, units: int) -> None:
        super().__init__("float32")
        self.in_features, self.out_features = (width,), units
        self._fuse()

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the product."""
        if self.is_fused:
            return self._run_fused((x, weight))
        weight = ops.transpose(self.factor(weight), (1, 0))
        return self.product(ops.matmul(self.factor(x), weight))

    def learned(self) -> Any:
        """Return an empty list, because the layer has no parameters."""
        return ()

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layer to a program, and return the output of the layer."""
        return program.linear(x, self.out_features, program.parameter(), output=output)
