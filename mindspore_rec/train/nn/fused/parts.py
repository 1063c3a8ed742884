# SPDX-License-Identifier: Apache-2.0
"""Wraps layers as parts of a `FusedGraph`, in which a layer may read other layers' outputs."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn

from mindspore_rec.train.nn.fused.inputs import join
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import NO_PART, Columns, Program

__all__ = ["JoinedPart", "LinearPart"]


class LinearPart(nn.Cell):
    """Linear layer that reads several joined inputs.

    Args:
        layer: the layer to compute, including the layer's own activation.
        widths: floats per row of each input.
        activation: name of the activation, which the layer or a cell after the layer applies.
            Default: 'none'.
    """

    def __init__(self, layer: nn.Dense, widths: tuple[int, ...], activation: str = "none") -> None:
        super().__init__(auto_prefix=False)
        self.layer, self.in_features = layer, widths
        self.out_features = layer.out_channels
        self.activation = activation
        self.activates = activation != "none" and not layer.activation_flag
        if self.activates:
            self.activate = nn.get_activation(activation)

    def construct(self, *inputs: Tensor) -> Tensor:
        """Return the output of the layer."""
        y = self.layer(join(inputs, self.in_features))
        return self.activate(y) if self.activates else y

    def joined(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `inputs` in the order of their columns in the fused operator."""
        return inputs

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` adds them."""
        if self.layer.has_bias:
            return self.layer.weight, self.layer.bias
        return (self.layer.weight,)

    def further(self) -> Any:
        """Return no further inputs."""
        return ()

    def add_to(self, program: Program, x: Columns, training: bool, output: Columns) -> Columns:
        """Add the layer to a program, and return the output's columns."""
        weight = program.parameter()
        bias = program.parameter() if self.layer.has_bias else NO_PART
        return program.linear(x, self.out_features, weight, bias, self.activation, output=output)


class JoinedPart(nn.Cell):
    """Wraps a layer whose inputs are concatenated from several values.

    Args:
        layer: the layer.
        widths: for each input of the layer, a tuple with the width of each concatenated value.
    """

    def __init__(self, layer: FusedLayer, widths: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(auto_prefix=False)
        self.layer, self.widths = layer, widths
        self.in_features = tuple(width for each in widths for width in each)
        self.out_features = layer.out_features

    def joined(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `inputs` in the order of their columns in the fused operator."""
        values = iter(inputs)
        arguments = tuple(tuple(next(values) for _ in each) for each in self.widths)
        return tuple(value for argument in self.layer.joined(arguments) for value in argument)

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` adds them."""
        return self.layer.learned()

    def further(self) -> Any:
        """Return the further inputs in the order in which `add_to` adds them."""
        return self.layer.further()

    def move(self, packed: Tensor, moved: Any) -> None:
        """Set the moving statistics, as `MLP.move` does."""
        self.layer.move(packed, moved)

    def add_to(self, program: Program, x: Columns, training: bool, output: Columns) -> Columns:
        """Add the layer to a program, and return the output's columns."""
        return self.layer.add_to(program, x, training, output)
