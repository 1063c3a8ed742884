# SPDX-License-Identifier: Apache-2.0
"""Dense programs on NumPy arrays, without MindSpore; see `train/nn/fused/program.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gpu.core import Core, to_bfloat16

__all__ = ["Columns", "Layers", "Program", "Run"]

_ROW_UNIT = 16  # of csrc/ops/dense_ops.cc
_PACKED_UNIT = 4096
_MOST_PADDING = 512  # maximum of rows that pad the last slice
_NO_MASKS = (-1, -1, 0)


class Columns(NamedTuple):
    """Columns of a value."""

    value: int
    offset: int
    width: int

    def part(self, offset: int, width: int) -> Columns:
        """Return the columns `offset` to `offset + width` (exclusive) of `self`."""
        return Columns(self.value, self.offset + offset, width)


class Program:
    """Builder of a program: adds layers in the order of computation, and initializes parameters.

    Args:
        core: the native core; the program runs on the device of the core.
        precision: type of the products' factors, 'float32' or 'bfloat16'.
        training: True if a batch normalization uses the statistics of the batch.
        exact: True if weights are small multiples of 1/2. If `exact` is True, and if inputs are
            small multiples of 1/4, the sums in a few layers are exact, and rounding never changes a
            number's sign.
        seed: seed of the initial parameters.
    """

    def __init__(
        self,
        core: Core,
        precision: str,
        *,
        training: bool = True,
        exact: bool = False,
        seed: int = 0,
    ) -> None:
        self.program: Any = core.module.DenseProgram(precision)
        self.training, self.exact = training, exact
        self.rng = np.random.default_rng(seed)
        self.input_widths: list[int] = []
        self.parameters: list[np.ndarray] = []
        self.extras: list[np.ndarray] = []
        self.products: list[tuple[int, int]] = []
        self.moved: list[tuple[int, int]] = []

    # ---- values

    def value(self, width: int) -> Columns:
        """Add memory for a layer's output of `width` columns, and return these columns."""
        return Columns(self.program.add_value(width), 0, width)

    def input(self, columns: Columns) -> None:
        """Add the program's next input; the program reads the input into `columns`."""
        self.program.add_input(columns)
        self.input_widths.append(columns.width)

    def inputs(self, *widths: int) -> Columns:
        """Add one input of each width, in adjacent columns; return the columns."""
        joined = self.value(sum(widths))
        offset = 0
        for width in widths:
            self.input(joined.part(offset, width))
            offset += width
        return joined

    # ---- parameters and further inputs

    def weight(self, rows: int, columns: int, fan_in: int) -> int:
        """Add a random matrix and return its index.

        The numbers are multiples of 1/2 if `exact` is True, and otherwise uniform (He et al.).
        """
        if self.exact:
            taken = self.rng.random((rows, columns)) < min(1.0, 8 / fan_in)
            signs = self.rng.integers(0, 2, (rows, columns)) - 0.5
            return self.parameter(np.where(taken, signs, 0.0))
        bound = np.sqrt(6 / fan_in)
        return self.parameter(self.rng.uniform(-bound, bound, (rows, columns)))

    def vector(self, width: int, around: float = 0.0) -> int:
        """Add a vector of numbers from `around` - 0.5 to `around` + 0.5, and return its index."""
        return self.parameter(around + self.rng.integers(-2, 3, width) / 4)

    def parameter(self, values: np.ndarray) -> int:
        """Add a parameter, and return its index."""
        self.parameters.append(np.ascontiguousarray(values, np.float32))
        return len(self.parameters) - 1

    def extra(self, values: np.ndarray) -> int:
        """Add an extra input, and return its index."""
        self.extras.append(np.ascontiguousarray(values))
        return len(self.extras) - 1

    def masks(self, width: int, count: int) -> tuple[int, int, int]:
        """Add `count` random dropout masks (rate 0.5); return the argument `masks` for a layer."""
        if not count:
            return _NO_MASKS
        drawn = self.rng.integers(0, 2, (count, width)) * np.float32(2.0)
        return (
            self.extra(drawn.astype(np.float32)),
            self.extra(np.array([3], np.int32)),
            count,
        )

    # ---- layers that networks have; callers add other layers with `self.program`

    def linear(
        self,
        x: Columns,
        width: int,
        activation: str = "none",
        *,
        bias: bool = True,
        masks: int = 0,
        output: Columns | None = None,
    ) -> Columns:
        """Add a linear layer with new parameters, and return its output."""
        y = self.value(width) if output is None else output
        weight = self.weight(width, x.width, x.width)
        added = self.vector(width) if bias else -1
        drops = self.masks(width, masks)
        self.program.add_linear(x, y, (weight, 0), False, (added, 0), activation, drops)
        self.products.append((x.width, width))
        return y

    def perceptron(
        self, x: Columns, hidden: Sequence[int], activation: str, last: int = 0
    ) -> Columns:
        """Add hidden layers and, if `last` is not 0, a linear layer of width `last`."""
        for units in hidden:
            x = self.linear(x, units, activation)
        return self.linear(x, last) if last else x

    def batch_norm(
        self, x: Columns, activation: str, *, masks: int = 0, output: Columns | None = None
    ) -> Columns:
        """Add a batch normalization, and return its output."""
        y = self.value(x.width) if output is None else output
        # With a shift of 0, rounding would decide the sign of a number that equals its column's
        # mean, and so the activation's slope.
        learned = (self.vector(x.width, 1.0), self.vector(x.width, 0.1))
        moving = (
            self.extra(self.rng.normal(0, 0.1, x.width).astype(np.float32)),
            self.extra(self.rng.uniform(0.5, 1.5, x.width).astype(np.float32)),
        )
        drops = self.masks(x.width, masks)
        at = self.program.add_batch_norm(
            x, y, learned, moving, activation, drops, 1e-5, 0.1, self.training
        )
        if self.training:
            self.moved.append((at, 2 * x.width))
        return y

    def finish(self, *outputs: Columns) -> Layers:
        """Return the finished program."""
        for columns in outputs:
            self.program.add_output(columns)
        number = self.program.finish(len(self.parameters), len(self.extras))
        return Layers(self, number, [columns.width for columns in outputs])


class Layers:
    """A finished program, with its parameters.

    Attributes:
        input_widths, output_widths: floats per row.
        parameters: float32 arrays.
        extras: further inputs.
        products: (input width, output width) of each linear layer.
        moved: (first index, number of floats) of each moving statistic in `packed`.
    """

    def __init__(self, program: Program, number: int, output_widths: list[int]) -> None:
        self.program = program.program  # keeps the program's number valid
        self.number = number
        self.input_widths, self.output_widths = program.input_widths, output_widths
        self.parameters, self.extras = program.parameters, program.extras
        self.products, self.moved = program.products, program.moved


class Run:
    """Memory for one batch, and the operators that compute in this memory.

    Args:
        core: the native core.
        layers: the program.
        inputs: arrays [B, ...] of type float32, or of type uint16 with the bits of bfloat16. The
            gradient of an input has the type of the input.
        fill: initial value of the memory that operators write. By default, the memory is not
            initialized.

    Attributes:
        outputs, output_gradients: float32 [B, width]; the caller writes `output_gradients`.
        input_gradients, parameter_gradients: arrays of the same shapes as inputs and parameters.
        forward, predict, backward: functions without arguments that run the operators of one pass.
    """

    def __init__(
        self,
        core: Core,
        layers: Layers,
        inputs: Sequence[np.ndarray],
        fill: float | None = None,
    ) -> None:
        batch = len(inputs[0])
        made = _empty if fill is None else _filled(fill)
        native = layers.program
        self.layers = layers
        self.outputs = [made((batch, width)) for width in layers.output_widths]
        self.output_gradients = [np.zeros_like(each) for each in self.outputs]
        self.input_gradients = [made(x.shape, x.dtype.type) for x in inputs]
        self.parameter_gradients = [made(p.shape) for p in layers.parameters]
        padded = batch + _MOST_PADDING
        saved_width = _units(native.saved_width, _ROW_UNIT)
        gradient_width = _units(native.gradient_width, _ROW_UNIT)
        packed_width = _units(native.packed_bytes, _PACKED_UNIT)
        saved = made((padded, saved_width * _ROW_UNIT))
        gradients = made((padded, gradient_width * _ROW_UNIT))
        self.packed = made((packed_width * _PACKED_UNIT // 4,))
        widths = [_width(width) for width in layers.output_widths]
        name = np.full(len(widths), layers.number, np.int64)
        arrays = [*inputs, *layers.parameters, *layers.extras]
        self.forward = core.bind(
            "MsrDenseForward",
            [name, _width(saved_width), _width(packed_width), *widths, *arrays]
            + [*self.outputs, saved, self.packed],
        )
        self.predict = core.bind(
            "MsrDensePredict",
            [name, _width(packed_width), *widths, *arrays, *self.outputs, self.packed],
        )
        arguments = len(inputs) + len(layers.parameters)
        self.backward = core.bind(
            "MsrDenseBackward",
            [np.full(arguments, layers.number, np.int64), _width(gradient_width), *arrays]
            + [saved, self.packed, *self.output_gradients]
            + [*self.input_gradients, *self.parameter_gradients, gradients],
        )

    def moved(self) -> list[np.ndarray]:
        """Return the moving statistics after a forward pass in training."""
        return [self.packed[at : at + floats].copy() for at, floats in self.layers.moved]


def _units(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


def _width(width: int) -> np.ndarray:
    return np.zeros(width, np.int8)


def _empty(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    return np.empty(shape, dtype)


def _filled(value: float) -> Any:
    def made(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        filled = np.full(shape, value, np.float32)
        return to_bfloat16(filled) if dtype == np.uint16 else filled

    return made
