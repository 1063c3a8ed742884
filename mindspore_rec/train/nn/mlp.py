# SPDX-License-Identifier: Apache-2.0
"""MLP: the multi-layer perceptron of recommendation models."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Initializer, XavierUniform

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.train.nn.dropout import SeededDropout, check_rate
from mindspore_rec.train.nn.fused.inputs import (
    MOST_UNITS,
    check_inputs,
    check_rows,
    check_widths,
    join,
)
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import Columns, Program

__all__ = ["ACTIVATIONS", "MLP", "check_hidden"]

ACTIVATIONS = ("relu", "leakyrelu", "gelu", "tanh", "sigmoid")
"""Legal activations of an MLP, by MindSpore's names."""

_RECTIFIERS = ("relu", "leakyrelu", "gelu")


class MLP(FusedLayer):
    r"""Fully connected hidden layers with activations, and an optional linear layer at the end.

    .. math::
        h_0 = x, \quad h_k = \text{drop}(a(\text{norm}(W_k h_{k-1} + b_k))), \quad
        y = W_{n+1} h_n + b_{n+1}

    In this formula, norm is batch normalization or the identity. The last, linear layer exists only
    if `out_features` is set; without this layer :math:`y = h_n`. Weights of layers with a rectifier
    as activation start with the initialization of He et al. (2015). Weights of layers with other
    activations, and of the last layer, start with the initialization of Glorot & Bengio (2010).
    Biases start with 0. `mindspore.set_seed` seeds the initialization.

    On the CPU one operator computes the whole stack, forward and backward, with matrix products by
    oneDNN; docs/dense.md lists the conditions. Batch normalization works like `nn.BatchNorm1d`, but
    a batch of one row does not change the moving variance.

    Args:
        in_features: width of the input, 1 to 2**20; or the widths of several inputs, with a sum of
            1 to 2**20. The inputs are joined without an extra copy.
        hidden: width of each hidden layer, at least 1; may be empty if `out_features` is set.
        activation: one of `ACTIVATIONS`. Default: 'relu'.
        dropout: probability that a hidden unit is dropped in training, in [0, 1). Default: 0.0.
        batch_norm: True to normalize each hidden layer before its activation. Normalized layers
            have no bias. Default: False.
        out_features: width of the last, linear layer; None to end with the last hidden layer.
            Default: None.
        compute_dtype: type to which inputs and weights are rounded in matrix products, 'float32' or
            'bfloat16'. Sums, stored weights and gradients are float32. On processors without
            bfloat16 instructions, 'bfloat16' gives the same numbers but is slower than 'float32'.
            Default: 'float32'.

    Inputs:
        x: float32 Tensor `[B, in_features]`, or, for several widths, one Tensor `[B, ...]` per
            width w, with w floats per row. A bfloat16 Tensor is also accepted, for example from a
            lookup with `output_dtype=bfloat16`.

    Outputs:
        float32 Tensor `[B, out_features]`, or `[B, hidden[-1]]` if `out_features` is None.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError, ValueError, RuntimeError: a call passes a wrong number of inputs, or inputs of
            wrong widths.

    Example:
        >>> import numpy as np
        >>> mlp = MLP(4, (8, 6), dropout=0.2, out_features=1)
        >>> mlp(Tensor(np.ones((3, 4), np.float32))).shape
        (3, 1)
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        hidden: Sequence[int],
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        out_features: int | None = None,
        *,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(compute_dtype)
        self.in_features = check_widths("in_features", in_features, MOST_UNITS)
        hidden = check_hidden(hidden, MOST_UNITS)
        if out_features is not None:
            check_int("out_features", out_features, 1, MOST_UNITS)
        elif not hidden:
            raise ValueError("hidden must have at least one layer where out_features is None")
        self.activation = check_one_of("activation", activation, ACTIVATIONS)
        dropout = check_rate("dropout", dropout)
        if not isinstance(batch_norm, bool):
            raise TypeError(f"batch_norm must be a bool, got {batch_norm!r}")
        width = sum(self.in_features)
        first: Initializer = HeUniform() if activation in _RECTIFIERS else XavierUniform()
        layers: list[nn.Cell] = []
        dense: list[int] = []  # indexes of the products, the normalizations and the dropouts
        norms: list[int] = []
        drops: list[int] = []
        for units in hidden:
            dense.append(len(layers))
            layers.append(_dense(width, units, first, has_bias=not batch_norm))
            if batch_norm:
                norms.append(len(layers))
                layers.append(nn.BatchNorm1d(units))
            layers.append(nn.get_activation(activation))
            if dropout > 0:
                drops.append(len(layers))
                layers.append(SeededDropout(units, dropout))
            width = units
        if out_features is not None:
            dense.append(len(layers))
            layers.append(_dense(width, out_features, XavierUniform(), has_bias=True))
            width = out_features
        self.out_features = width
        self.normalizes = batch_norm
        self.hidden = len(hidden)
        self.dense, self.norms, self.drops = tuple(dense), tuple(norms), tuple(drops)
        self.moved: tuple[int, ...] = ()  # offsets of the new moving statistics
        self.layers = nn.SequentialCell(layers)
        self._fuse()

    @property
    def last_bias(self) -> Parameter:
        """Bias of the output layer, which exists only if `out_features` is set."""
        return self.layers[self.dense[-1]].bias

    def construct(self, *inputs: Tensor) -> Tensor:
        """Return the output of the last layer."""
        check_inputs(inputs, self.in_features)
        if self.is_fused:
            check_rows(inputs, self.in_features)
            return self._fused(inputs)
        x = join(inputs, self.in_features)
        if self.compute_dtype == "float32":
            return self.layers(x)
        return self._rounded(x)

    def _rounded(self, x: Tensor) -> Tensor:
        """Return the output of MindSpore's layers, with products in `compute_dtype`."""
        for i in range(len(self.layers)):
            layer = self.layers[i]
            x = self.through(layer, x) if i in self.dense else layer(x)
        return x

    def _fused(self, inputs: Any) -> Any:
        arguments = (*inputs, *self.learned(), *self.further())
        if not self.training:
            return self.fused_evaluation(*arguments)[0]
        outputs = self.fused_training(*arguments)
        if self.normalizes:
            self.move(ops.stop_gradient(outputs[2]), self.moved)
        return outputs[0]

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` uses them."""
        parameters: Any = ()
        for k in range(len(self.dense)):
            dense = self.layers[self.dense[k]]
            parameters = (*parameters, dense.weight)
            if k < len(self.norms):
                norm = self.layers[self.norms[k]]
                parameters = (*parameters, norm.gamma, norm.beta)
            else:
                parameters = (*parameters, dense.bias)
        return parameters

    def further(self) -> Any:
        """Return moving statistics and masks in the order in which `add_to` reads these inputs."""
        extras: Any = ()
        for k in range(self.hidden):
            if self.normalizes:
                norm = self.layers[self.norms[k]]
                extras = (*extras, norm.moving_mean, norm.moving_variance)
            if self.training and self.drops:
                drop = self.layers[self.drops[k]]
                extras = (*extras, drop.scaled, drop.take())
        return extras

    def move(self, packed: Tensor, moved: Any) -> None:
        """Set the moving statistics.

        Args:
            packed: the training program's last output, a vector that contains the new moving
                statistics.
            moved: for each hidden layer, the offset of the layer's new statistics in `packed`.
        """
        for k in range(self.hidden):
            norm, at = self.layers[self.norms[k]], moved[k]
            middle, end = at + norm.num_features, at + 2 * norm.num_features
            ops.assign(norm.moving_mean, packed[at:middle])
            ops.assign(norm.moving_variance, packed[middle:end])

    def _program(self, training: bool) -> nn.Cell:
        program = Program(self.compute_dtype)
        x = self.add_to(program, program.inputs(*self.in_features), training)
        if training:
            self.moved = tuple(program.moved)
        return program.cell([x], training)

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the stack of layers to a program, and return the output's columns."""
        masks = SeededDropout.masks if training and self.drops else 0
        for k, at in enumerate(self.dense):
            weight, units = program.parameter(), self.layers[at].out_channels
            last = output if k + 1 == len(self.dense) else None
            if k == self.hidden:
                x = program.linear(x, units, weight, program.parameter(), output=last)
            elif self.normalizes:
                norm = self.layers[self.norms[k]]
                x = program.batch_norm(
                    program.linear(x, units, weight),
                    self.activation,
                    epsilon=norm.eps,
                    momentum=norm.momentum,
                    training=training,
                    masks=masks,
                    output=last,
                )
            else:
                x = program.linear(
                    x,
                    units,
                    weight,
                    program.parameter(),
                    self.activation,
                    masks=masks,
                    output=last,
                )
        return x


def check_hidden(hidden: Sequence[int], most: int) -> tuple[int, ...]:
    """Check the widths of hidden layers, and return the widths as a tuple.

    Args:
        hidden: width of each layer; may be empty.
        most: greatest legal width.

    Raises:
        TypeError, ValueError: `hidden` is not a sequence of ints, or a width is not in `[1, most]`.

    Example:
        >>> check_hidden([64, 32], 1024)
        (64, 32)
    """
    if isinstance(hidden, (str, int)) or not isinstance(hidden, Collection):
        raise TypeError(f"hidden must be a sequence of ints, got {hidden!r}")
    return tuple(check_int(f"hidden[{k}]", h, 1, most) for k, h in enumerate(hidden))


def _dense(width: int, units: int, weight: Initializer, has_bias: bool) -> nn.Dense:
    return nn.Dense(width, units, weight_init=weight, bias_init="zeros", has_bias=has_bias)
