# SPDX-License-Identifier: Apache-2.0
"""Describes layers as a program of the native core."""

from __future__ import annotations

from typing import NamedTuple

from mindspore_rec import _native
from mindspore_rec.train.nn.fused.cell import ProgramCell, program_cell
from mindspore_rec.train.nn.fused.device import get_dense_device

__all__ = ["NO_PART", "Columns", "Part", "Program"]


class Columns(NamedTuple):
    """Columns of a value; the value is a matrix with one row per sample.

    Attributes:
        value: index of the value in the program.
        offset: first column.
        width: number of columns.
    """

    value: int
    offset: int
    width: int

    def part(self, offset: int, width: int) -> Columns:
        """Return `width` columns of this object, beginning with column `offset`."""
        return Columns(self.value, self.offset + offset, width)


class Part(NamedTuple):
    """Part of a parameter.

    Attributes:
        parameter: index of the parameter in its program.
        offset: index of the part's first element in the flat parameter. Default: 0.
    """

    parameter: int
    offset: int = 0


NO_PART = Part(-1)
"""Part of no parameter: a layer without a bias."""

_NO_MASKS = (-1, -1, 0)
_DROPPED_IN_PLACE = ("none", "relu", "leakyrelu")  # as DropsInPlace in csrc/dense/row_masks.h


class Program:
    """Program of layers, in the order of their computation.

    Parameters and further inputs are numbered in the order of their addition to the program. The
    arguments of the finished cell are all inputs, then all parameters, then all further inputs.
    Each of these three groups is sorted by number.

    A program runs on the device that `get_dense_device` returned when the program was made.

    Args:
        compute_dtype: type of the products' factors, 'float32' or 'bfloat16'.

    Raises:
        ValueError: the environment variable `MINDSPORE_REC_DENSE_DEVICE` has an illegal value.
        RuntimeError: the variable names a GPU that cannot be used.

    Example:
        >>> import numpy as np
        >>> from mindspore import Tensor
        >>> program = Program("float32")
        >>> x = program.inputs(3)
        >>> y = program.linear(x, 2, program.parameter(), activation="relu")
        >>> cell = program.cell([y], training=False)
        >>> weight = Tensor(np.array([[1, 2, 3], [-1, 0, 0]], np.float32))
        >>> cell(Tensor(np.ones((1, 3), np.float32)), weight)[0].asnumpy().tolist()
        [[6.0, 0.0]]
    """

    def __init__(self, compute_dtype: str) -> None:
        self._device = get_dense_device()
        self._native = _native.DenseProgram(compute_dtype)
        self._inputs = 0
        self._parameters = 0
        self._extras = 0
        self.moved: list[int] = []  # offsets of the new moving statistics in `packed`

    def input(self, columns: Columns) -> None:
        """Add an input; the program copies `columns.width` floats of each row into `columns`."""
        self._native.add_input(columns)
        self._inputs += 1

    def inputs(self, *widths: int) -> Columns:
        """Add an input for each width (floats per row), and return the inputs' joined columns."""
        joined = self.value(sum(widths))
        offset = 0
        for width in widths:
            self.input(joined.part(offset, width))
            offset += width
        return joined

    def value(self, width: int) -> Columns:
        """Return a new value of `width` columns."""
        return Columns(self._native.add_value(width), 0, width)

    def parameter(self) -> Part:
        """Return the next parameter."""
        self._parameters += 1
        return Part(self._parameters - 1)

    def _extra(self) -> int:
        """Add a further input, that is, an input without a gradient; return the input's index."""
        self._extras += 1
        return self._extras - 1

    def linear(
        self,
        x: Columns,
        width: int,
        weight: Part,
        bias: Part = NO_PART,
        activation: str = "none",
        *,
        input_major: bool = False,
        masks: int = 0,
        output: Columns | None = None,
    ) -> Columns:
        """Add a linear layer, its activation and its dropout; return the output's columns.

        Args:
            x: columns of the input.
            width: width of the output.
            weight: matrix `[width, x.width]`, or `[x.width, width]` if `input_major`.
            bias: vector `[width]`. Default: none.
            activation: 'none' or one of `ACTIVATIONS`. Default: 'none'.
            input_major: whether the weight is stored as `[x.width, width]`. Default: False.
            masks: number of dropout masks. Default: 0, which means no dropout.
            output: columns to write. Default: a new value.
        """
        own, inside, is_last = _inside(activation, masks)
        y = output if is_last and output is not None else self.value(width)
        drops = self._masks(inside)
        self._native.add_linear(x, y, weight, input_major, bias, own, drops)
        return y if is_last else self._behind(y, activation, masks - inside, output)

    def _masks(self, count: int) -> tuple[int, int, int]:
        """Add a dropout's two further inputs; return the inputs' indexes and the count of masks."""
        return (self._extra(), self._extra(), count) if count else _NO_MASKS

    def _behind(self, x: Columns, activation: str, masks: int, output: Columns | None) -> Columns:
        """Add the steps (GELU, then dropout) that follow a layer; return the output's columns."""
        if activation == "gelu":
            y = output if output is not None and not masks else self.value(x.width)
            self._native.add_gelu(x, y)
            x = y
        return self.dropout(x, masks, output) if masks else x

    def dropout(self, x: Columns, count: int, output: Columns | None = None) -> Columns:
        """Add a dropout that uses masks; return `output`, or a new value if `output` is None.

        The dropout reads two further inputs: the masks, float32 `[count, x.width]`, and an index n,
        int32 `[1]`. Row i uses mask (n + 1 + i) % count.
        """
        y = self.value(x.width) if output is None else output
        self._native.add_dropout(x, y, self._extra(), self._extra(), count)
        return y

    def softmax(self, x: Columns, group: int) -> Columns:
        """Add a softmax over every `group` adjacent columns; return the output's columns."""
        y = self.value(x.width)
        self._native.add_softmax(x, y, group)
        return y

    def sum_groups(self, x: Columns, width: int, output: Columns | None = None) -> Columns:
        """Add a layer that sums groups of columns from left to right; return the output's columns.

        Args:
            x: columns of all groups, side by side.
            width: columns per group.
            output: columns to write. Default: a new value.
        """
        y = self.value(width) if output is None else output
        self._native.add_sum_groups(x, y)
        return y

    def pairwise_dots(
        self,
        x: Columns,
        vectors: int,
        diagonal: bool,
        keeps_first: bool,
        output: Columns | None = None,
    ) -> Columns:
        """Add a layer that computes the dot products of all pairs of a row's vectors.

        Return the output's columns.

        Args:
            x: columns of the vectors, one vector after the other.
            vectors: number of vectors.
            diagonal: whether to include the product of each vector with itself.
            keeps_first: True if the output begins with a copy of the first vector.
            output: columns to write. Default: a new value.
        """
        dim = x.width // vectors
        pairs = vectors * (vectors + (1 if diagonal else -1)) // 2
        width = pairs + (dim if keeps_first else 0)
        y = self.value(width) if output is None else output
        self._native.add_pairwise_dots(x, y, vectors, diagonal, keeps_first)
        return y

    def factorized_pairs(
        self, x: Columns, fields: int, sums: bool, output: Columns | None = None
    ) -> Columns:
        """Add the sum over elementwise products of all pairs of fields; return the sum's columns.

        Args:
            x: columns of the fields' vectors, side by side.
            fields: number of fields.
            sums: True to output one number, the sum of the vector's elements; False to output the
                vector.
            output: columns to write. Default: a new value.
        """
        y = self.value(1 if sums else x.width // fields) if output is None else output
        self._native.add_factorized_pairs(x, y, fields, sums)
        return y

    def mixture(self, units: Columns, gates: Columns, experts: int, tasks: int) -> Columns:
        """Add a weighted sum of the experts' outputs for each task; return the sums' columns.

        Args:
            units: columns of the experts' outputs, one expert after the other.
            gates: columns of the weights, `experts` columns for each task.
            experts: number of experts.
            tasks: number of tasks; the mixtures of the tasks are adjacent in the output.
        """
        y = self.value(units.width // experts * tasks)
        self._native.add_mixture(units, gates, y, experts, tasks)
        return y

    def scale_groups(self, x: Columns, scales: Columns) -> Columns:
        """Add a layer that multiplies group i of the columns of `x` by column i of `scales`."""
        y = self.value(x.width)
        self._native.add_scale_groups(x, scales, y)
        return y

    def scale_vectors(
        self, x: Columns, vectors: Part, width: int, output: Columns | None = None
    ) -> Columns:
        """Add a layer that multiplies number i of each row by vector i; return the output columns.

        Args:
            x: columns that contain the numbers.
            vectors: matrix `[x.width, dim]`.
            width: width of the output, x.width * dim.
            output: columns to write. Default: a new value.
        """
        y = self.value(width) if output is None else output
        self._native.add_scale_vectors(x, y, vectors.parameter)
        return y

    def curves(
        self, x: Columns, knots: Part, bins: int, width: int, output: Columns | None = None
    ) -> Columns:
        """Add a layer with a piecewise linear curve for each number; return the output's columns.

        Args:
            x: columns that contain the numbers.
            knots: array `[x.width, bins + 1, dim]`, the vectors at the ends of the pieces.
            bins: number of pieces of a curve.
            width: width of the output, x.width * dim.
            output: columns to write. Default: a new value.
        """
        y = self.value(width) if output is None else output
        self._native.add_curves(x, y, bins, knots.parameter)
        return y

    def waves(
        self,
        x: Columns,
        parameters: tuple[Part, Part, Part],
        count: int,
        width: int,
        output: Columns | None = None,
    ) -> Columns:
        """Add a layer: relu(weight @ waves + bias) for each number; return the output's columns.

        Here, `waves` are the sines and cosines of a number at all frequencies.

        Args:
            x: columns that contain the numbers.
            parameters: three Parts: frequencies `[x.width, count]`, weight `[dim, 2 * count]` and
                bias `[dim]`.
            count: number of frequencies per number in `x`.
            width: width of the output, x.width * dim.
            output: columns to write. Default: a new value.
        """
        y = self.value(width) if output is None else output
        frequencies, weight, bias = (part.parameter for part in parameters)
        self._native.add_waves(x, y, count, (frequencies, weight, bias))
        return y

    def cross_combine(
        self, first: Columns, mapped: Columns, x: Columns, output: Columns | None = None
    ) -> Columns:
        """Add an elementwise layer for `first * mapped + x`; return the output's columns."""
        y = self.value(x.width) if output is None else output
        self._native.add_cross_combine(first, mapped, x, y)
        return y

    def cross_vectors(
        self, x: Columns, layers: int, weight: Part, bias: Part, output: Columns | None = None
    ) -> Columns:
        """Add a cross network with one weight vector per layer; return the output's columns.

        Args:
            x: columns of the input.
            layers: number of cross layers, 1 to 64.
            weight: matrix `[layers, x.width]`.
            bias: matrix `[layers, x.width]`.
            output: columns to write. Default: a new value.
        """
        y = self.value(x.width) if output is None else output
        products = self.value(layers)
        self._native.add_cross_vectors(x, y, products, weight.parameter, bias.parameter)
        return y

    def batch_norm(
        self,
        x: Columns,
        activation: str,
        *,
        epsilon: float,
        momentum: float,
        training: bool,
        masks: int = 0,
        output: Columns | None = None,
    ) -> Columns:
        """Add a batch normalization, its activation and its dropout; return the output's columns.

        The normalization reads two parameters, gamma and beta, and two further inputs, the moving
        mean and variance, all float32 `[x.width]`. In training, only this normalization may read
        `x`. The cell's last output, `packed`, contains the new moving mean and then the new moving
        variance. The offset of the new moving mean in `packed` is appended to `moved`.

        Args:
            x: columns of the input; `x` must contain all columns of a value.
            activation: 'none' or one of `ACTIVATIONS`.
            epsilon: number added to the variance.
            momentum: weight of the batch in the new moving statistics.
            training: True to normalize by the batch's moments, False to use the moving statistics.
            masks: number of dropout masks. Default: 0, which means no dropout.
            output: columns to write. Default: a new value.
        """
        learned = (self.parameter().parameter, self.parameter().parameter)
        moving = (self._extra(), self._extra())
        own, inside, is_last = _inside(activation, masks)
        y = output if is_last and output is not None else self.value(x.width)
        drops = self._masks(inside)
        at = self._native.add_batch_norm(
            x, y, learned, moving, own, drops, epsilon, momentum, training
        )
        if training:
            self.moved.append(at)
        return y if is_last else self._behind(y, activation, masks - inside, output)

    def cell(self, outputs: list[Columns], training: bool) -> ProgramCell:
        """Finish the program, and return a cell that runs the program.

        Args:
            outputs: columns of the outputs.
            training: whether the cell stores values for the backward pass.
        """
        for columns in outputs:
            self._native.add_output(columns)
        number = self._native.finish(self._parameters, self._extras)
        arguments = (self._inputs, self._parameters, self._extras)
        widths = tuple(columns.width for columns in outputs)
        return program_cell(self._native, number, arguments, widths, training, self._device)


def _inside(activation: str, masks: int) -> tuple[str, int, bool]:
    """Return the layer's own activation and number of masks, and True if no steps follow."""
    own = "none" if activation == "gelu" else activation
    inside = masks if activation in _DROPPED_IN_PLACE else 0
    return own, inside, own == activation and inside == masks
