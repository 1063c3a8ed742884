# SPDX-License-Identifier: Apache-2.0
"""MMoE: multi-gate mixture of experts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Uniform

from mindspore_rec.checks import check_int
from mindspore_rec.nn.dropout import SeededDropout, check_rate
from mindspore_rec.nn.mlp import MLP

__all__ = ["MMoE"]

_MOST_EXPERTS = 1024


class MMoE(nn.Cell):
    r"""Multi-gate mixture of experts: tasks share experts, each weighs them by a gate of its own.

    .. math::
        g^k(x) = \text{softmax}(W_{g}^k x), \quad
        y^k = \sum_{e=1}^{E} g^k(x)_e \, f_e(x)

    for task k, where each expert :math:`f_e` is an `MLP` and each gate :math:`W_g^k`, a matrix
    `[experts, in_features]` without bias, reads the whole input. The softmax is over the experts of
    one row, so that a row's output does not depend on the other rows of its batch.

    All experts start with weights of their own, for experts that start alike and are weighed alike
    get the same gradient and stay alike. `mindspore.set_seed` decides this draw and that of what is
    dropped: a seed gives the same training, bit by bit.

    The first layers of all experts are one matrix product, and so are all gates.

    Source: Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts", KDD 2018, https://doi.org/10.1145/3219819.3220007.

    Args:
        in_features: width of the input, at least 1.
        experts: number of experts E, 1 to 1024.
        hidden: width of each layer of an expert, at least 1 each; at least one layer.
        tasks: number of tasks, 1 to 1024, each with one gate.
        activation: activation of the experts, as for `MLP`. Default: 'relu'.
        dropout: probability that a unit of an expert's layers is dropped in training, in [0, 1).
            Default: 0.0.
        input_dropout: probability that an input is dropped in training, for all experts and gates
            alike, in [0, 1). Default: 0.0.

    Inputs:
        x: float32 Tensor `[B, in_features]`.

    Outputs:
        Tuple of one float32 Tensor `[B, hidden[-1]]` a task.

    Attributes:
        out_features: width of an output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

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
        in_features: int,
        experts: int,
        hidden: Sequence[int],
        tasks: int,
        activation: str = "relu",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.experts = check_int("experts", experts, 1, _MOST_EXPERTS)
        self.tasks = check_int("tasks", tasks, 1, _MOST_EXPERTS)
        if isinstance(hidden, (str, int)):
            raise TypeError(f"hidden must be a sequence of ints, got {hidden!r}")
        if not len(hidden):
            raise ValueError("hidden must have at least one layer, got none")
        widest = (1 << 20) // self.experts
        width, *later = [check_int(f"hidden[{k}]", h, 1, widest) for k, h in enumerate(hidden)]
        self.drops_inputs = check_rate("input_dropout", input_dropout) > 0
        self.drops_units = check_rate("dropout", dropout) > 0
        # Drawn with the fan-in of one expert: a wide layer is E narrow ones side by side.
        self.first = MLP(in_features, [self.experts * width], activation)
        self.width = width
        # A product for each expert: faster on CPU than BatchMatMul and the transposes it needs.
        self.later = nn.CellList(
            [_later_layers(width, later, activation, dropout) for _ in range(self.experts)]
            if later
            else []
        )
        if self.drops_inputs:
            self.input_dropout = SeededDropout(in_features, input_dropout)
        if self.drops_units:
            self.dropout = SeededDropout(self.experts * width, dropout)
        self.gates = nn.Dense(
            in_features,
            self.tasks * self.experts,
            weight_init=Uniform(math.sqrt(6 / (in_features + self.experts))),
            has_bias=False,
        )
        self.out_features = later[-1] if later else width

    def construct(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one mixture a task, float32 `[B, hidden[-1]]` each."""
        if self.drops_inputs:
            x = self.input_dropout(x)
        outputs = self.expert_outputs(x)
        gates = self.gate_weights(x).reshape((-1, self.tasks * self.experts))
        weights = ops.split(gates, 1, 1)
        mixtures: tuple[Tensor, ...] = ()
        for k in range(self.tasks):
            # One after the other: CPU kernels add [B, H] faster than they reduce [B, E, H].
            mixture = weights[k * self.experts] * outputs[0]
            for e in range(1, self.experts):
                mixture = mixture + weights[k * self.experts + e] * outputs[e]
            mixtures += (mixture,)
        return mixtures

    def expert_outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the experts, a float32 Tensor `[B, out_features]` each."""
        units = self.first(x)
        if self.drops_units:
            units = self.dropout(units)
        outputs = ops.split(units, self.width, 1)
        if self.later:
            return tuple([self.later[e](outputs[e]) for e in range(self.experts)])
        return outputs

    def gate_weights(self, x: Tensor) -> Tensor:
        """Return the tasks' weights of the experts: float32 `[B, tasks, experts]`, summing to 1."""
        return ops.softmax(self.gates(x).reshape((-1, self.tasks, self.experts)), -1)


def _later_layers(
    width: int, hidden: Sequence[int], activation: str, dropout: float
) -> nn.SequentialCell:
    cells: list[nn.Cell] = []
    for units in hidden:
        cells.append(MLP(width, [units], activation))
        if dropout > 0:
            cells.append(SeededDropout(units, dropout))
        width = units
    return nn.SequentialCell(cells)
