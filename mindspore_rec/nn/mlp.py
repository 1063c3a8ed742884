# SPDX-License-Identifier: Apache-2.0
"""MLP: the multi-layer perceptron of recommendation models."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, nn
from mindspore.common.initializer import HeUniform, Initializer, XavierUniform

from mindspore_rec.checks import check_int, check_one_of
from mindspore_rec.nn.dropout import SeededDropout, check_rate

__all__ = ["ACTIVATIONS", "MLP"]

ACTIVATIONS = ("relu", "leakyrelu", "gelu", "tanh", "sigmoid")
"""Legal activations of an MLP, by MindSpore's names."""

_RECTIFIERS = ("relu", "leakyrelu", "gelu")
_MOST_UNITS = 1 << 20


class MLP(nn.Cell):
    r"""Fully connected layers with an activation each.

    .. math::
        h_0 = x, \quad h_k = \text{drop}(a(\text{norm}(W_k h_{k-1} + b_k))), \quad
        y = W_{n+1} h_n + b_{n+1}

    where norm is batch normalization (or nothing), and the last, linear layer is there where
    `out_features` is given; without it :math:`y = h_n`. Weights start as He et al. (2015) for
    rectifiers, as Glorot & Bengio (2010) for other activations and the last layer; biases as 0.
    `mindspore.set_seed` decides the draw.

    Args:
        in_features: width of the input, at least 1.
        hidden: width of each hidden layer, at least 1 each; may be empty with `out_features`.
        activation: one of `ACTIVATIONS`. Default: 'relu'.
        dropout: probability that a hidden unit is dropped in training, in [0, 1). Default: 0.0.
        batch_norm: whether hidden layers are normalized before their activation; the layer then
            has no bias of its own. Default: False.
        out_features: width of the linear output; None for the last hidden layer. Default: None.

    Inputs:
        x: float32 Tensor `[B, in_features]`.

    Outputs:
        float32 Tensor `[B, out_features]`, or `[B, hidden[-1]]`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import numpy as np
        >>> mlp = MLP(4, (8, 6), dropout=0.2, out_features=1)
        >>> mlp(Tensor(np.ones((3, 4), np.float32))).shape
        (3, 1)
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        out_features: int | None = None,
    ) -> None:
        super().__init__()
        width = check_int("in_features", in_features, 1, _MOST_UNITS)
        if isinstance(hidden, (str, int)):
            raise TypeError(f"hidden must be a sequence of ints, got {hidden!r}")
        if not len(hidden) and out_features is None:
            raise ValueError("hidden must have at least one layer where out_features is None")
        activation = check_one_of("activation", activation, ACTIVATIONS)
        dropout = check_rate("dropout", dropout)
        if not isinstance(batch_norm, bool):
            raise TypeError(f"batch_norm must be a bool, got {batch_norm!r}")
        first: Initializer = HeUniform() if activation in _RECTIFIERS else XavierUniform()
        layers: list[nn.Cell] = []
        for k, size in enumerate(hidden):
            units = check_int(f"hidden[{k}]", size, 1, _MOST_UNITS)
            layers.append(_dense(width, units, first, has_bias=not batch_norm))
            if batch_norm:
                layers.append(nn.BatchNorm1d(units))
            layers.append(nn.get_activation(activation))
            if dropout > 0:
                layers.append(SeededDropout(units, dropout))
            width = units
        if out_features is not None:
            units = check_int("out_features", out_features, 1, _MOST_UNITS)
            layers.append(_dense(width, units, XavierUniform(), has_bias=True))
            width = units
        self.out_features = width
        self.layers = nn.SequentialCell(layers)

    def construct(self, x: Tensor) -> Tensor:
        """Return the output of the last layer."""
        return self.layers(x)


def _dense(width: int, units: int, weight: Initializer, has_bias: bool) -> nn.Dense:
    return nn.Dense(width, units, weight_init=weight, bias_init="zeros", has_bias=has_bias)
