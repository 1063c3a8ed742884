# SPDX-License-Identifier: Apache-2.0
"""TargetRows: the stand-in for `TargetAttention` during an export."""

from __future__ import annotations

from functools import partial

from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.export.histories.lists import rows_of_lists
from mindspore_rec.train.export.histories.marks import Marks
from mindspore_rec.train.export.histories.pooling import pool_values
from mindspore_rec.train.export.histories.rows import DiceRows, PReluRows
from mindspore_rec.train.nn.target_attention import TargetAttention

__all__ = ["TargetRows"]


class TargetRows(nn.Cell):
    """Stand-in for `TargetAttention`, made from the cell's parameters.

    The names of the parameters show the layers: `weight`, `bias` and `activation` belong to the
    first layer; `layers.0`, `layers.1` and so on contain the other layers and activations.

    Args:
        cell: the cell.
        marks: `Marks` object that creates and stores the cell's marks, which are placeholders for
            ONNX nodes.

    Inputs and outputs are the same as for `TargetAttention`.
    """

    def __init__(self, cell: TargetAttention, marks: Marks) -> None:
        super().__init__(auto_prefix=False)
        prefix = cell.weight.name.removesuffix("weight")
        named = {each.name.removeprefix(prefix): each for each in cell.get_parameters()}
        epsilon = cell.activation.epsilon if cell.is_dice else 0.0
        layers: list[nn.Cell] = [
            _Linear(named["weight"], named["bias"]),
            _activation(named, "activation", epsilon),
        ]
        for k in range(0, 2 * cell.hidden, 2):
            linear = f"layers.{k}.layers.0"
            layers.append(_Linear(named[f"{linear}.weight"], named[f"{linear}.bias"]))
            if f"layers.{k + 1}.alpha" in named:  # the last layer has no activation
                layers.append(_activation(named, f"layers.{k + 1}", epsilon))
        self.layers = nn.CellList(layers, auto_prefix=False)
        self.candidates = marks.new(2, rows_of_lists)
        self.pool = marks.new(3, partial(pool_values, softmax=cell.softmax))

    def construct(self, candidate: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the weighted sums of values."""
        c = self.candidates(values, candidate, offsets)
        x = ops.concat((c, values, c - values, c * values), 1)
        for layer in self.layers:
            x = layer(x)
        return self.pool(candidate, x, values, offsets)


class _Linear(nn.Cell):
    """Linear layer that uses given Parameters."""

    def __init__(self, weight: Parameter, bias: Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.weight, self.bias = weight, bias
        self.product = ops.MatMul(transpose_b=True)

    def construct(self, x: Tensor) -> Tensor:
        """Return the products."""
        return self.product(x, self.weight) + self.bias


class _Dice(nn.Cell):
    """Dice layer that uses given Parameters."""

    def __init__(
        self, alpha: Parameter, mean: Parameter, variance: Parameter, epsilon: float
    ) -> None:
        super().__init__(auto_prefix=False)
        self.alpha, self.mean, self.variance = alpha, mean, variance
        self.activate = DiceRows(epsilon)

    def construct(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return self.activate(x, self.alpha, self.mean, self.variance)[0]


class _PRelu(nn.Cell):
    """PReLU that uses a given Parameter."""

    def __init__(self, alpha: Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.alpha = alpha
        self.activate = PReluRows()

    def construct(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return self.activate(x, self.alpha)


def _activation(named: dict[str, Parameter], name: str, epsilon: float) -> nn.Cell:
    alpha = named[f"{name}.alpha"]
    if f"{name}.moving_mean" not in named:
        return _PRelu(alpha)
    mean, variance = named[f"{name}.moving_mean"], named[f"{name}.moving_variance"]
    return _Dice(alpha, mean, variance, epsilon)
