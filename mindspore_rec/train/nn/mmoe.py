# SPDX-License-Identifier: Apache-2.0
"""MMoE: multi-gate mixture of experts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Uniform

from mindspore_rec.common.checks import check_int
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
from mindspore_rec.train.nn.mlp import MLP, check_hidden

__all__ = ["MMoE"]

_MOST_EXPERTS = 1024


class MMoE(FusedLayer):
    r"""Multi-gate mixture of experts: tasks share experts, and each task's gate weighs the experts.

    .. math::
        g^k(x) = \text{softmax}(W_{g}^k x), \quad
        y^k = \sum_{e=1}^{E} g^k(x)_e \, f_e(x)

    In this formula, k is a task, and each expert :math:`f_e` is an `MLP`. Each gate :math:`W_g^k`
    is a matrix `[experts, in_features]` without bias and reads the whole input. The softmax is over
    the experts of one row, so that a row's output does not depend on the other rows of the batch.

    The experts start with different weights. Experts with equal weights and equal gates would get
    equal gradients and stay equal. `mindspore.set_seed` seeds the initial weights and the dropout,
    so that two training runs with the same seed give bit-identical results.

    One matrix product computes the first layers of all experts, and another product computes all
    gates. On the CPU one operator computes the whole mixture, forward and backward, with matrix
    products by oneDNN.

    Source: Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts", KDD 2018, https://doi.org/10.1145/3219819.3220007.

    Args:
        in_features: width of the input, at least 1; or the widths of several inputs, which are
            joined without an extra copy.
        experts: number of experts E, 1 to 1024.
        hidden: widths of the layers of an expert, at least one layer, each width at least 1.
        tasks: number of tasks, 1 to 1024; each task has one gate.
        activation: activation of the experts, as for `MLP`. Default: 'relu'.
        dropout: probability that a unit of an expert's layers is dropped in training, in [0, 1).
            Default: 0.0.
        input_dropout: probability that an input is dropped in training, in [0, 1). A dropped input
            is dropped for all experts and gates. Default: 0.0.
        compute_dtype: type to which inputs and weights are rounded in matrix products, 'float32' or
            'bfloat16', as for `MLP`. Softmax and mixtures are float32. Default: 'float32'.

    Inputs:
        x: float32 Tensor `[B, in_features]`, or, for several widths, one Tensor `[B, ...]` per
            width w, with w floats per row.

    Outputs:
        Tuple of one float32 Tensor `[B, hidden[-1]]` per task.

    Attributes:
        out_features: width of an output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        TypeError, ValueError, RuntimeError: the number or the widths of the inputs are wrong.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import MMoE
        >>> mixture = MMoE(6, experts=4, hidden=(8, 3), tasks=2)
        >>> x = Tensor(np.ones((5, 6), np.float32))
        >>> [y.shape for y in mixture(x)]
        [(5, 3), (5, 3)]
        >>> mixture.gate_weights(x).shape
        (5, 2, 4)
    """

    def __init__(
        self,
        in_features: int | Sequence[int],
        experts: int,
        hidden: Sequence[int],
        tasks: int,
        activation: str = "relu",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        *,
        compute_dtype: str = "float32",
    ) -> None:
        super().__init__(compute_dtype)
        self.in_features = check_widths("in_features", in_features, MOST_UNITS)
        inputs = sum(self.in_features)
        self.experts = check_int("experts", experts, 1, _MOST_EXPERTS)
        self.tasks = check_int("tasks", tasks, 1, _MOST_EXPERTS)
        hidden = check_hidden(hidden, MOST_UNITS // self.experts)
        if not hidden:
            raise ValueError("hidden must have at least one layer, got none")
        width, *later = hidden
        self.drops_inputs = check_rate("input_dropout", input_dropout) > 0
        self.drops_units = check_rate("dropout", dropout) > 0
        self.activation = activation
        # One wide layer contains the first layers of all experts. The first layer of every expert
        # has the same fan-in as the wide layer.
        self.first = MLP(inputs, [self.experts * width], activation, compute_dtype=compute_dtype)
        self.width = width
        self.later_widths = tuple(later)
        # On the CPU, one product per expert is faster than BatchMatMul with its transposes.
        self.later = nn.CellList(
            [
                _later_layers(width, later, activation, dropout, compute_dtype)
                for _ in range(self.experts)
            ]
            if later
            else []
        )
        if self.drops_inputs:
            self.input_dropout = SeededDropout(inputs, input_dropout)
        if self.drops_units:
            self.dropout = SeededDropout(self.experts * width, dropout)
        self.gates = nn.Dense(
            inputs,
            self.tasks * self.experts,
            weight_init=Uniform(math.sqrt(6 / (inputs + self.experts))),
            has_bias=False,
        )
        self.out_features = later[-1] if later else width
        self._fuse()

    def construct(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return one mixture per task, each float32 `[B, hidden[-1]]`."""
        check_inputs(inputs, self.in_features)
        if self.is_fused:
            check_rows(inputs, self.in_features)
            return self._fused(inputs)
        x = join(inputs, self.in_features)
        if self.drops_inputs:
            x = self.input_dropout(x)
        outputs = self._outputs_of(x)
        gates = self._gates_of(x).reshape((-1, self.tasks * self.experts))
        weights = ops.split(gates, 1, 1)
        mixtures: tuple[Tensor, ...] = ()
        for k in range(self.tasks):
            # Add one expert at a time, because CPU kernels add matrices `[B, H]` faster than they
            # reduce a Tensor `[B, E, H]`.
            mixture = weights[k * self.experts] * outputs[0]
            for e in range(1, self.experts):
                mixture = mixture + weights[k * self.experts + e] * outputs[e]
            mixtures += (mixture,)
        return mixtures

    def expert_outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the experts, each a float32 Tensor `[B, out_features]`."""
        check_inputs(inputs, self.in_features)
        return self._outputs_of(join(inputs, self.in_features))

    def gate_weights(self, *inputs: Tensor) -> Tensor:
        """Return each task's expert weights, which sum to 1: float32 `[B, tasks, experts]`."""
        check_inputs(inputs, self.in_features)
        return self._gates_of(join(inputs, self.in_features))

    def _outputs_of(self, x: Any) -> Any:
        units = self.first(x)
        if self.drops_units:
            units = self.dropout(units)
        outputs = ops.split(units, self.width, 1)
        if self.later:
            return tuple([self.later[e](outputs[e]) for e in range(self.experts)])
        return outputs

    def _gates_of(self, x: Any) -> Any:
        scores = self.through(self.gates, x)
        return ops.softmax(scores.reshape((-1, self.tasks, self.experts)), -1)

    def _fused(self, inputs: Any) -> Any:
        arguments = (*inputs, self.first.layers[0].weight, self.first.layers[0].bias)
        stride = 2 if self.drops_units else 1
        for e in range(len(self.later)):
            for k in range(len(self.later_widths)):
                dense = self.later[e][k * stride].layers[0]
                arguments = (*arguments, dense.weight, dense.bias)
        arguments = (*arguments, self.gates.weight)
        if not self.training:
            return self.fused_evaluation(*arguments)[: self.tasks]
        if self.drops_inputs:
            arguments = (*arguments, self.input_dropout.scaled, self.input_dropout.take())
        if self.drops_units:
            arguments = (*arguments, self.dropout.scaled, self.dropout.take())
            for e in range(len(self.later)):
                for k in range(len(self.later_widths)):
                    drop = self.later[e][k * stride + 1]
                    arguments = (*arguments, drop.scaled, drop.take())
        return self.fused_training(*arguments)[: self.tasks]

    def _program(self, training: bool) -> nn.Cell:
        program = Program(self.compute_dtype)
        x = program.inputs(*self.in_features)
        if training and self.drops_inputs:
            x = program.dropout(x, SeededDropout.masks)
        drops = training and self.drops_units
        units = program.linear(
            x,
            self.experts * self.width,
            program.parameter(),
            program.parameter(),
            self.activation,
        )
        if drops:
            units = program.dropout(units, SeededDropout.masks)
        if self.later_widths:
            units = self._later_program(program, units, drops)
        scores = program.linear(x, self.tasks * self.experts, program.parameter())
        gates = program.softmax(scores, self.experts)
        mixtures = program.mixture(units, gates, self.experts, self.tasks)
        outputs = [
            mixtures.part(k * self.out_features, self.out_features) for k in range(self.tasks)
        ]
        return program.cell(outputs, training)

    def _later_program(self, program: Program, units: Columns, drops: bool) -> Columns:
        """Add all layers except the first; return the columns of the experts' outputs."""
        joined = program.value(self.experts * self.out_features)
        for e in range(self.experts):
            x = units.part(e * self.width, self.width)
            for k, width in enumerate(self.later_widths):
                is_last = k + 1 == len(self.later_widths)
                output = joined.part(e * width, width) if is_last else None
                weight, bias = program.parameter(), program.parameter()
                target = None if drops else output
                x = program.linear(x, width, weight, bias, self.activation, output=target)
                if drops:
                    x = program.dropout(x, SeededDropout.masks, output)
        return joined


def _later_layers(
    width: int, hidden: Sequence[int], activation: str, dropout: float, compute_dtype: str
) -> nn.SequentialCell:
    cells: list[nn.Cell] = []
    for units in hidden:
        cells.append(MLP(width, [units], activation, compute_dtype=compute_dtype))
        if dropout > 0:
            cells.append(SeededDropout(units, dropout))
        width = units
    return nn.SequentialCell(cells)
