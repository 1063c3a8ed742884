# SPDX-License-Identifier: Apache-2.0
"""FusedSequential: an ordinary stack of dense layers and activations, run as one operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import mindspore as ms
from mindspore import Tensor, nn

from mindspore_rec.train.nn.fused.changed import is_altered, is_watched
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import NO_PART, Program
from mindspore_rec.train.nn.fusing.layers import activation_of

__all__ = ["FusedSequential"]


class _Step(NamedTuple):
    """Index of a dense layer in the stack, and the activation that follows the layer."""

    at: int
    activation: str


class FusedSequential(FusedLayer):
    """Computes an `nn.SequentialCell` by one operator forward and one operator backward.

    The cell contains the layers of the stack, with the same names and the same Parameter objects,
    so a checkpoint of the stack can be loaded into the cell, and a checkpoint of the cell into the
    stack. The stack itself computes the output in four cases: the device is not the CPU, oneDNN is
    missing, `mindspore.export` runs, or the input is not a float32 matrix.

    Args:
        stack: float32 `nn.Dense` layers, each with at most one activation, and no other cells. The
            activation is the layer's `activation`, or a cell after the layer: `nn.ReLU`,
            `nn.LeakyReLU()`, `nn.GELU()`, `nn.Tanh` or `nn.Sigmoid`.
        compute_dtype: type to which the factors of matrix products are rounded, 'float32' or
            'bfloat16'. Default: 'float32'.

    Inputs:
        x: any Tensor that the stack accepts.

    Outputs:
        Tensor, the output of the stack.

    Raises:
        TypeError: `stack` is not an `nn.SequentialCell`.
        ValueError: the stack contains an unsupported cell, or its layers cannot be fused.

    Example:
        >>> import numpy as np
        >>> stack = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 1))
        >>> fused = FusedSequential(stack)
        >>> fused(Tensor(np.ones((3, 4), np.float32))).shape, len(fused)
        ((3, 1), 3)
        >>> [name for name, _ in fused.parameters_and_names()][:2]
        ['0.weight', '0.bias']
    """

    def __init__(self, stack: nn.SequentialCell, compute_dtype: str = "float32") -> None:
        super().__init__(compute_dtype)
        if not isinstance(stack, nn.SequentialCell):
            raise TypeError(f"stack must be an nn.SequentialCell, got {type(stack).__name__}")
        steps = _steps_of(stack)
        if steps is None:
            raise ValueError(
                "stack must consist of nn.Dense layers of float32 and activations behind them, got "
                f"{', '.join(type(cell).__name__ for cell in stack)}"
            )
        self.steps = steps
        self.dense = tuple(step.at for step in steps)
        # Bypass Cell.__setattr__, which would rename the parameters. The cell shares the stack's
        # children, so that the paths of parameters do not change.
        object.__setattr__(self, "stack", stack)
        self._cells.update(stack._cells)
        self.set_train(stack.training)
        self._fuse()

    @staticmethod
    def takes(cell: nn.Cell) -> bool:
        """Return whether a cell is a stack that can be fused.

        Example:
            >>> FusedSequential.takes(nn.SequentialCell(nn.Dense(2, 2), nn.Softmax()))
            False
        """
        return type(cell) is nn.SequentialCell and _steps_of(cell) is not None

    def construct(self, x: Tensor) -> Tensor:
        """Return the output of the last layer."""
        if not self.is_fused or x.ndim != 2 or x.dtype != ms.float32:
            return self._plain(x)
        arguments: Any = (x,)
        for at in self.dense:
            layer = self.stack[at]
            arguments = (*arguments, layer.weight)
            if layer.has_bias:
                arguments = (*arguments, layer.bias)
        return self._run_fused(arguments)

    def _plain(self, x: Tensor) -> Tensor:
        """Return the output of MindSpore's layers, with products in `compute_dtype`."""
        if self.compute_dtype == "float32":
            return self.stack(x)
        for i in range(len(self.stack)):
            layer = self.stack[i]
            x = self.through(layer, x) if i in self.dense else layer(x)
        return x

    def _program(self, training: bool) -> nn.Cell:
        program = Program(self.compute_dtype)
        x = program.inputs(self.stack[0].in_channels)
        for step in self.steps:
            layer = self.stack[step.at]
            weight = program.parameter()
            bias = program.parameter() if layer.has_bias else NO_PART
            x = program.linear(x, layer.out_channels, weight, bias, step.activation)
        return program.cell([x], training)

    def __len__(self) -> int:
        return len(self.stack)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[nn.Cell]:
        return iter(self.stack)

    def __getitem__(self, index: Any) -> nn.Cell:
        return self.stack[index]


def _steps_of(stack: nn.SequentialCell) -> tuple[_Step, ...] | None:
    """Return a `_Step` for each dense layer, or None if the stack cannot be fused."""
    steps: list[_Step] = []
    if is_altered(stack) or is_watched(stack):
        return None
    for at, cell in enumerate(stack):
        if is_altered(cell) or is_watched(cell):
            return None
        if type(cell) is nn.Dense:
            named = activation_of(cell.activation) if cell.activation_flag else "none"
            if named is None or cell.weight.dtype != ms.float32:
                return None
            steps.append(_Step(at, named))
            continue
        named = activation_of(cell)
        if named is None or not steps or steps[-1].activation != "none":
            return None
        steps[-1] = _Step(steps[-1].at, named)
    widths = [(stack[step.at].in_channels, stack[step.at].out_channels) for step in steps]
    fit = all(one[1] == other[0] for one, other in zip(widths, widths[1:], strict=False))
    return tuple(steps) if steps and fit else None
