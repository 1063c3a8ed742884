# SPDX-License-Identifier: Apache-2.0
"""Base class of layers that run as one operator, or else as MindSpore's layers."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import mindspore as ms
from mindspore import Tensor, get_context, nn, ops

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.train.graph.exporting import is_exporting
from mindspore_rec.train.nn.fused.around import cells_around
from mindspore_rec.train.nn.fused.cell import ProgramCell
from mindspore_rec.train.nn.fused.changed import changed_inside
from mindspore_rec.train.nn.fused.device import read_environment
from mindspore_rec.train.nn.fused.library import has_onednn
from mindspore_rec.train.nn.fused.program import Columns, Program
from mindspore_rec.train.nn.fused.rounding import GradientRounding, Rounding

__all__ = [
    "COMPUTE_DTYPES",
    "FusedLayer",
    "cells_of_operators",
    "devices_of_parameters",
    "may_fuse",
]

COMPUTE_DTYPES = ("float32", "bfloat16")
"""Legal types of the factors of products; sums, weights and gradients are float32."""

_Layer = TypeVar("_Layer", bound="FusedLayer")


class FusedLayer(nn.Cell):
    """Base class of layers with a fused form: one operator forward and one operator backward.

    The fused form is used on the CPU, if oneDNN is found. On other devices, in `mindspore.export`,
    in float16 or bfloat16 (`to_float`), or without oneDNN, the cell calls MindSpore's layers with
    the same parameters. The cell calls MindSpore's layers, too, if an inner cell has hooks, was
    replaced, or was frozen by `set_train(False)`. A `RuntimeWarning` names the inner cell that has
    hooks, was frozen or was replaced.

    A subclass sets `in_features`, the widths of its inputs. The subclass calls `_fuse` at the end
    of its `__init__`, reads `self.is_fused` in `construct`, and describes its fused form in
    `add_to`. If MindSpore's layers compute, the subclass calls `factor` for the factors of matrix
    products and `product` for the products, so that the precision is the same as in the operator. A
    subclass without matrix products sets `rounds_products = False`.

    Args:
        compute_dtype: type of the products' factors, one of `COMPUTE_DTYPES`.
    """

    rounds_products = True

    def __init__(self, compute_dtype: str) -> None:
        super().__init__()
        self.compute_dtype = check_one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)
        self.in_features: tuple[int, ...] = ()
        self.fused_training: Any = None
        self.fused_evaluation: Any = None
        self.rounds = Rounding()
        self.rounds_gradient = GradientRounding()
        self._made_of: list[nn.Cell] = []

    def set_compute_dtype(self: _Layer, compute_dtype: str) -> _Layer:
        """Set the type of the factors in products, for this layer and all layers inside it.

        A network that contains the layer is compiled again at the network's next call. A function
        that was compiled under `jit` before this call keeps the old compute type.

        Args:
            compute_dtype: type of the products' factors, 'float32' or 'bfloat16'.

        Returns:
            The layer itself.

        Raises:
            ValueError: `compute_dtype` is neither 'float32' nor 'bfloat16'.

        Example:
            >>> from mindspore_rec.nn import MLP
            >>> MLP(4, (8, 6)).set_compute_dtype("bfloat16").compute_dtype
            'bfloat16'
        """
        check_one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)
        layers = [cell for cell in self.cells_in() if isinstance(cell, FusedLayer)]
        for layer in layers:
            layer.compute_dtype = compute_dtype
            if layer.fused_training is not None:
                layer._fuse()
        for cell in cells_around(*layers):
            cell.compile_cache.clear()
        return self

    def _fuse(self) -> None:
        """Make the fused operators for training and for evaluation."""
        read_environment()  # a GPU that is set, but cannot be used, is an error
        if has_onednn():
            if not self._made_of:
                self.__dict__["_made_of"] = self._cells_inside()
            self.fused_training = self._program(training=True)
            self.fused_evaluation = self._program(training=False)

    def _program(self, training: bool) -> nn.Cell:
        """Return the fused form."""
        program = Program(self.compute_dtype if self.rounds_products else "float32")
        x = program.inputs(*self.joined(self.in_features))
        return program.cell([self.add_to(program, x, training)], training)

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the layer to a program, and return the output's columns.

        Args:
            program: the program.
            x: columns of all inputs, side by side, in the order that the method `joined` returns.
            training: whether the program is for training.
            output: columns to write. Default: a new value.
        """
        raise NotImplementedError

    def joined(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `inputs` in the order of their columns in the fused operator."""
        return inputs

    def learned(self) -> Any:
        """Return the parameters in the order in which `add_to` adds them."""
        return ()

    def further(self) -> Any:
        """Return the further inputs in the order in which `add_to` adds them."""
        return ()

    def _run_fused(self, arguments: Any) -> Any:
        """Run the fused operator on the inputs and parameters in `arguments`; return the output."""
        if self.training:
            return self.fused_training(*arguments)[0]
        return self.fused_evaluation(*arguments)[0]

    @property
    def is_fused(self) -> bool:
        """True if the fused form is used; the value is fixed in a compiled graph."""
        if self.fused_training is None or not may_fuse(self.cells_in()):
            return False
        if self._is_changed():
            return False
        return all(layer.is_fused and layer.compute_dtype == "float32" for layer in self.fuses())

    def _cells_inside(self) -> list[nn.Cell]:
        """Return the cells that the operator replaces, without the layer itself."""
        return [
            cell
            for cell in self.cells_in()
            if cell is not self and not isinstance(cell, (ProgramCell, Rounding, GradientRounding))
        ]

    def _is_changed(self) -> bool:
        """Return whether a cell inside the layer has changed since `_fuse`; warn once per cell."""
        change = changed_inside(self, self._cells_inside(), self._made_of)
        if change is None:
            return False
        cell, what = change
        if not cell.__dict__.get("_mindspore_rec_warned"):
            cell.__dict__["_mindspore_rec_warned"] = True
            warnings.warn(
                f"{type(self).__name__} runs as MindSpore's layers, which are slower, for "
                f"'{self._path_of(cell)}' in it, of type {type(cell).__name__}, {what}",
                RuntimeWarning,
                stacklevel=2,
            )
        return True

    def _path_of(self, cell: nn.Cell) -> str:
        """Return the name of a cell inside the layer, such as 'layers.1'."""
        return next((name for name, each in self.cells_and_names() if each is cell), "")

    def fuses(self) -> list[FusedLayer]:
        """Return the inner layers that the operator of this layer computes."""
        return []

    def cells_in(self) -> list[nn.Cell]:
        """Return the layer and all cells inside the layer."""
        return [cell for _, cell in self.cells_and_names()]

    @property
    def rounding(self) -> str:
        """Rounding of factors: 'none', 'round' (bfloat16 values as float32) or 'cast' (bfloat16).

        An exported network has float32 products, which every runtime can compute.
        """
        if self.compute_dtype == "float32" or is_exporting():
            return "none"
        return "round" if get_context("device_target") == "CPU" else "cast"

    def factor(self, x: Tensor) -> Tensor:
        """Return `x` as a factor in `compute_dtype`; the gradient of `x` is float32."""
        if self.rounding == "none":
            return x
        return self.rounds(x) if self.rounding == "round" else ops.cast(x, ms.bfloat16)

    def product(self, y: Tensor) -> Tensor:
        """Return a product of rounded factors as float32; the product's gradient is rounded too."""
        if self.rounding == "none":
            return y
        return self.rounds_gradient(y) if self.rounding == "round" else ops.cast(y, ms.float32)

    def through(self, linear: nn.Dense, x: Tensor) -> Tensor:
        """Return the output of the layer `linear`, with the matrix product in `compute_dtype`."""
        if self.rounding == "none":
            return linear(x)
        weight = ops.transpose(self.factor(linear.weight), (1, 0))
        y = self.product(ops.matmul(self.factor(x), weight))
        if linear.has_bias:
            y = y + linear.bias
        return linear.activation(y) if linear.activation_flag else y


def may_fuse(cells: list[nn.Cell]) -> bool:
    """Return whether operators of the native core may replace all of `cells`.

    Operators may replace only cells on the CPU. Operators must not replace cells in an export, or
    cells that compute in float16 or bfloat16.
    """
    if get_context("device_target") != "CPU" or is_exporting():
        return False
    return not any(_is_half(cell) for cell in cells)


def cells_of_operators(network: nn.Cell) -> set[int]:
    """Return the `id` of each cell inside the layers that run as one operator.

    Example:
        >>> cells_of_operators(nn.Dense(2, 1))
        set()
    """
    return {
        id(inside)
        for _, cell in network.cells_and_names()
        if isinstance(cell, FusedLayer) and cell.is_fused
        for inside in cell.cells_in()
    }


def devices_of_parameters(network: nn.Cell) -> dict[int, str]:
    """Map the `id` of each parameter to the device of the operator that reads the parameter.

    Parameters of MindSpore's own layers are not in the result.

    Example:
        >>> from mindspore_rec.nn import MLP
        >>> set(devices_of_parameters(MLP(4, (8, 6))).values())
        {'cpu'}
    """
    devices: dict[int, str] = {}
    for _, cell in network.cells_and_names():  # a layer comes before the layers that it is made of
        if isinstance(cell, FusedLayer) and cell.is_fused:
            device = cell.fused_training.runs_on
            for parameter in cell.get_parameters():
                devices.setdefault(id(parameter), device)
    return devices


def _is_half(cell: nn.Cell) -> bool:
    """Return whether `to_float` has set a cell's type to float16 or bfloat16."""
    flags = cell.get_flags()
    return bool(flags.get("fp16") or flags.get("bf16"))
