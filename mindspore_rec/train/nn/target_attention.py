# SPDX-License-Identifier: Apache-2.0
"""TargetAttention: pools a history by an MLP on the candidate and each value, as in DIN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Initializer, XavierUniform, Zero, initializer

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.train.nn.dice import Dice, PReLU
from mindspore_rec.train.nn.fused.around import cells_around
from mindspore_rec.train.nn.fused.changed import changed_inside
from mindspore_rec.train.nn.fused.inputs import widened
from mindspore_rec.train.nn.fused.layer import COMPUTE_DTYPES
from mindspore_rec.train.nn.fused.library import has_onednn
from mindspore_rec.train.nn.history.operators import (
    FLOAT32_ONLY,
    NO_BIAS,
    HistoryLayer,
    HistoryOperator,
    check_history,
)
from mindspore_rec.train.nn.history.target import TargetOperator, target_operator
from mindspore_rec.train.nn.mlp import check_hidden

__all__ = ["TargetAttention"]

_MOST_UNITS = 1 << 16


class _Parts(HistoryLayer):
    """Base class of TargetAttention; checks whether the operator may replace the inner cells."""

    def __init__(self) -> None:
        super().__init__()
        self._made_of: list[nn.Cell] = []

    @property
    def obstacle(self) -> str:
        """Reason why the operator cannot replace the cells inside this cell, or ''."""
        cells = self._cells_inside()
        change = changed_inside(self, cells, self._made_of)
        for cell in cells:
            if isinstance(cell, Dice) and cell.training != self.activation.training:
                change = cell, "is in another mode (set_train) than the first Dice"
        if change is None:
            return ""
        return (
            "one operator computes a TargetAttention, which needs the cells inside as they were "
            f"made, but a cell of type {type(change[0]).__name__} {change[1]}"
        )

    @property
    def is_of_batch(self) -> bool:
        """True if the activation is a Dice cell that normalizes by the moments of the batch."""
        return isinstance(self.activation, Dice) and self.activation.training

    def _cells_inside(self) -> list[nn.Cell]:
        """Return the cells that the operator replaces."""
        return [
            cell
            for cell in (self.activation, *(each for _, each in self.layers.cells_and_names()))
            if not isinstance(cell, HistoryOperator)
        ]


class TargetAttention(_Parts):
    r"""Pools each history by weights that depend on the candidate, as in DIN.

    .. math::
        y_b = \sum_j a(c_b, v_j)\, v_j, \quad
        a(c, v) = \text{MLP}([c, v, c - v, c \odot v])

    The sum runs over the values of history b; the sum over an empty history is 0. By default, no
    softmax is applied to the weights, as in the paper, so the vector of a long history of similar
    values has a large norm.

    The histories of a batch are concatenated without padding. The computing time is proportional to
    the number of values. One operator computes the whole attention, in blocks of values that stay
    in the processor's cache. The operator never stores the concatenated input of the MLP. The first
    layer is linear in the candidate, the value and their product, so the operator multiplies each
    candidate by the layer's weights once, instead of once per value. In training, Dice normalizes
    by the moments of all values of the batch. The batch contains no padding.

    Results are identical bit for bit for any number of threads. The cell runs on the CPU.

    Source: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction" (DIN), KDD 2018,
    https://arxiv.org/abs/1706.06978. The code of the paper's authors also passes c - v to the MLP.

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
        RuntimeError: `offsets` decrease, do not begin with 0, or do not end with N. RuntimeError is
            also raised if the number of lists differs from the number of candidates, if an inner
            cell has hooks or was replaced, or if only some of the inner Dice cells are frozen by
            `set_train(False)`.

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
        self.activation = kind(hidden[0])
        layers: list[nn.Cell] = []
        for width, units in zip(hidden, hidden[1:], strict=False):
            layers += [_Linear(width, units), kind(units)]
        self.layers = nn.SequentialCell([*layers, _Linear(hidden[-1], 1)])
        self.hidden, self.softmax = len(hidden), softmax
        self.is_dice = kind is Dice
        self._made_of = self._cells_inside()
        self._set_operators("float32")

    def set_compute_dtype(self, compute_dtype: str) -> nn.Cell:
        """Set the type of the factors in products; sums, weights and gradients stay float32.

        Args:
            compute_dtype: type of the factors, 'float32' or 'bfloat16'. If 'bfloat16', the factors
                of products are rounded to bfloat16.

        Returns:
            The cell itself.

        Raises:
            ValueError: `compute_dtype` is neither 'float32' nor 'bfloat16'.

        Example:
            >>> from mindspore_rec.nn import TargetAttention
            >>> TargetAttention(8).set_compute_dtype("bfloat16").compute_dtype
            'bfloat16'
        """
        self._set_operators(check_one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES))
        for cell in cells_around(self):
            cell.compile_cache.clear()
        return self

    def _set_operators(self, compute_dtype: str) -> None:
        has_onednn()  # loads oneDNN, which the operator uses if the library is loaded
        self.compute_dtype = compute_dtype
        self.batch_operator = self._operator(of_batch=True)
        self.moving_operator = self._operator(of_batch=False)

    def _operator(self, of_batch: bool) -> TargetOperator:
        rounds = self.compute_dtype == "bfloat16"
        numbers = (self.activation.epsilon, self.activation.momentum) if self.is_dice else (0, 0)
        return target_operator(self.hidden, self.is_dice, of_batch, self.softmax, rounds, numbers)

    def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the weighted sums of values."""
        if self.is_half:
            raise TypeError(FLOAT32_ONLY)
        check_history(values, offsets, self.dim)
        values = widened(values)
        if candidate.ndim != 2 or candidate.shape[1] != self.dim:
            raise ValueError(f"candidate must be [B, {self.dim}], got {candidate.shape}")
        if self.obstacle != "":
            raise RuntimeError(self.obstacle)
        arguments = (widened(candidate), values, offsets, *self._parameters_in_order())
        if not self.is_of_batch:
            return self.moving_operator(*arguments)[0]
        outputs = self.batch_operator(*arguments)
        for k in range(self.hidden):
            dice = self.activation if k == 0 else self.layers[2 * k - 1]
            ops.assign(dice.moving_mean, ops.stop_gradient(outputs[4 + 2 * k]))
            ops.assign(dice.moving_variance, ops.stop_gradient(outputs[5 + 2 * k]))
        return outputs[0]

    def _parameters_in_order(self) -> Any:
        """Return the parameters in the order of the operator's inputs."""
        parameters: Any = ()
        for k in range(self.hidden):
            weight, bias, activation = self.weight, self.bias, self.activation
            if k > 0:
                linear = self.layers[2 * k - 2].layers[0]
                weight, bias, activation = linear.weight, linear.bias, self.layers[2 * k - 1]
            parameters += (weight, bias, activation.alpha)
            if self.is_dice:
                parameters += (activation.moving_mean, activation.moving_variance)
            else:
                parameters += (NO_BIAS, NO_BIAS)
        last = self.layers[2 * self.hidden - 2].layers[0]
        return (*parameters, last.weight, last.bias)


class _Linear(nn.Cell):
    """Cell that contains a linear layer's parameters under the names that checkpoints use.

    Args:
        width: width of the input.
        units: width of the output.
    """

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        first: Initializer = XavierUniform()
        self.layers = nn.SequentialCell([nn.Dense(width, units, first, "zeros")])

    def construct(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        return self.layers(x)
