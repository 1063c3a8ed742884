# SPDX-License-Identifier: Apache-2.0
"""Runs a dense program as one operator, and its gradient as another operator.

There is a separate class for each number of arguments, because the graph compiler refuses a `bprop`
with a variable number of arguments. The classes are made from source text that the compiler can
read.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec import _native
from mindspore_rec.train.graph.operators import LIBRARY, TableOperator
from mindspore_rec.train.nn.fused.inputs import widened

__all__ = [
    "ProgramCell",
    "argument_names",
    "module_of",
    "native_operator",
    "program_cell",
    "refusal_of",
]

_ROW_UNIT = 16  # of csrc/ops/dense_ops.cc
_PACKED_UNIT = 4096
# Programs with at most this number of inputs read bfloat16 inputs directly; programs with more
# inputs cast bfloat16 inputs to float32. The types of an operator are fixed, so each combination of
# float32 and bfloat16 inputs needs its own operator.
_MOST_NARROW_INPUTS = 3

_SOURCE = '''# SPDX-License-Identifier: Apache-2.0
"""A cell that runs a dense program of {count} arguments; written by mindspore_rec."""

from mindspore_rec.train.nn.fused.cell import ProgramCell


class ProgramCell{count}(ProgramCell):
    """Dense program of {count} arguments."""

    def construct(self, {names}):
        """Return the outputs."""
        return self.outputs_of(({names},))

    def bprop(self, {names}, out, dout):
        """Return the gradients of the arguments."""
        return self.gradients_of(({names},), out, dout)
'''


_REFUSAL = '''# SPDX-License-Identifier: Apache-2.0
"""The gradient of an operator of {count} inputs, which has none; written by mindspore_rec."""


def refuse({names}, out, dout):
    """Raise an error."""
    raise NotImplementedError(
        "a layer of mindspore_rec that runs as one operator has no second derivatives: use "
        "MindSpore's own layers, by the environment variable MINDSPORE_REC_ONEDNN=off (there are "
        "none for layers over histories)"
    )
'''


class ProgramCell(nn.Cell):
    """Cell that runs a dense program.

    Args:
        program: the finished program.
        number: index of the program.
        arguments: number of inputs, number of parameters, and number of further inputs.
        outputs: widths of the outputs.
        training: True to keep the values that the gradient needs; False to recompute these values
            in the backward pass.
        device: the device that the program runs on.

    Inputs:
        float32 or bfloat16 Tensors `[B, ...]`, the parameters, and further inputs without a
        gradient. The gradient of a bfloat16 input is rounded to bfloat16.

    Outputs:
        Tuple of float32 Tensors `[B, width]`. If `training` is True, values for the gradient follow
        the output Tensors.
    """

    def __init__(
        self,
        program: _native.DenseProgram,
        number: int,
        arguments: tuple[int, int, int],
        outputs: tuple[int, ...],
        training: bool,
        device: str,
    ) -> None:
        super().__init__(auto_prefix=False)
        self._program = program  # keeps the number valid
        self._number, self._arguments, self._outputs = number, arguments, outputs
        inputs, parameters, extras = arguments
        self.inputs, self.learned = inputs, inputs + parameters
        self.extras = extras
        self.count = len(outputs)
        self.keeps = training
        self.runs_on = device
        self.forward_name = Tensor(np.full(self.count, number, np.int64))
        self.backward_name = Tensor(np.full(self.learned, number, np.int64))
        self.saved_width = _width(program.saved_width, _ROW_UNIT)
        self.gradient_width = _width(program.gradient_width, _ROW_UNIT)
        self.packed_width = _width(program.packed_bytes, _PACKED_UNIT)
        self.output_widths = tuple(_width(width, 1) for width in outputs)
        self.forward = native_operator("MsrDenseForward", self.count + 2)
        self.predict = native_operator("MsrDensePredict", self.count + 1)
        argument_count = 2 + inputs + parameters + extras + 2 + self.count
        refusal = refusal_of(argument_count)
        choices = 1 << inputs if inputs <= _MOST_NARROW_INPUTS else 1
        # If input i is a bfloat16 Tensor, bit i of the operator's index in `backwards` is set.
        self.backwards = tuple(
            native_operator("MsrDenseBackward", self.learned + 1, refusal, narrow=choice)
            for choice in range(choices)
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgramCell:
        """Return a copy that shares this cell's program, because a program never changes."""
        arguments = (self._program, self._number, self._arguments, self._outputs)
        copied = type(self)(*arguments, self.keeps, self.runs_on)
        memo[id(self)] = copied
        return copied

    def outputs_of(self, given: Any) -> Any:
        """Return the outputs; in training, the values for the gradient follow the outputs."""
        given = self._taken(given)
        if self.keeps:
            return self._whole_forward(given)
        return self.predict(self.forward_name, self.packed_width, *self.output_widths, *given)

    def gradients_of(self, given: Any, out: Any, dout: Any) -> Any:
        """Return a gradient for each argument."""
        taken = self._taken(given)
        kept = out if self.keeps else self._whole_forward(taken)
        gradients = self.backwards[self._narrow_inputs(taken)](
            self.backward_name,
            self.gradient_width,
            *taken,
            kept[self.count],
            kept[self.count + 1],
            *dout[: self.count],
        )[: self.learned]
        if len(self.backwards) == 1:
            inputs: Any = ()
            for i in range(self.inputs):
                narrow = given[i].dtype == ms.bfloat16
                inputs = (*inputs, ops.cast(gradients[i], ms.bfloat16) if narrow else gradients[i])
            gradients = (*inputs, *gradients[self.inputs :])
        for i in range(self.extras):
            gradients = (*gradients, ops.zeros_like(given[self.learned + i]))
        return gradients

    def _taken(self, arguments: Any) -> Any:
        """Return the arguments, converted to dtypes that the operators accept."""
        if len(self.backwards) > 1:
            return arguments
        taken: Any = ()
        for i in range(self.inputs):
            taken = (*taken, widened(arguments[i]))
        return (*taken, *arguments[self.inputs :])

    def _narrow_inputs(self, arguments: Any) -> int:
        """Return the index, in `backwards`, of the operator for the inputs' dtypes."""
        place = 0
        for i in range(self.inputs):
            if arguments[i].dtype == ms.bfloat16:
                place = place + (1 << i)
        return place

    def _whole_forward(self, arguments: Any) -> Any:
        return self.forward(
            self.forward_name, self.saved_width, self.packed_width, *self.output_widths, *arguments
        )


def program_cell(
    program: _native.DenseProgram,
    number: int,
    arguments: tuple[int, int, int],
    outputs: tuple[int, ...],
    training: bool,
    device: str,
) -> ProgramCell:
    """Return a cell that runs a program; the arguments are as in `ProgramCell`."""
    return _class_of(sum(arguments))(program, number, arguments, outputs, training, device)


def _width(width: int, unit: int) -> Tensor:
    return Tensor(np.zeros(max(1, -(-width // unit)), np.int8))


def native_operator(
    name: str,
    outputs: int,
    bprop: Any = None,
    *,
    narrow: int = 0,
    raises_at_once: bool = False,
) -> TableOperator:
    """Return an operator of the native library with one or several float32 outputs.

    Args:
        name: its name.
        outputs: number of outputs.
        bprop: its gradient. Default: none.
        narrow: bit mask; bit i is set if output i is bfloat16. Default: 0, which means that all
            outputs are float32.
        raises_at_once: whether a call outside a graph waits until the operator has finished.
            Pass `raises_at_once=True` for operators that check values from the user. If the call
            does not wait, PyNative mode calls the next operator even if a result is missing after
            an error, and may crash. Default: False.
    """
    dtypes = tuple(ms.bfloat16 if narrow >> i & 1 else ms.float32 for i in range(outputs))
    # The operator has no side effect, so the compiler merges two calls with the same arguments, for
    # example in a train step that computes the network for the loss and again for the gradients.
    of_all = dtypes if outputs > 1 else dtypes[0]
    op = TableOperator(f"{LIBRARY}:{name}", None, of_all, "aot", bprop)
    op.add_prim_attr("reg_op_name", name)
    op.tell_dtypes(of_all)
    if outputs > 1:
        op.add_prim_attr("multi_output", True)
    op.raises_at_once = raises_at_once
    return op


@functools.cache
def _directory(process: int) -> Path:
    path = Path(tempfile.mkdtemp(prefix="mindspore_rec_"))
    atexit.register(_remove, path, process)
    return path


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child leaves what its parent still uses
        shutil.rmtree(path, ignore_errors=True)


def argument_names(count: int) -> str:
    """Return the names of `count` arguments, as source text.

    Example:
        >>> argument_names(2)
        'a0, a1'
    """
    return ", ".join(f"a{i}" for i in range(count))


def module_of(name: str, source: str) -> Any:
    """Write source text to a file that the compiler can read; return the file's module."""
    path = _directory(os.getpid()) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where the compiler looks names up
    spec.loader.exec_module(module)
    return module


@functools.cache
def _class_of(count: int) -> type[ProgramCell]:
    source = _SOURCE.format(count=count, names=argument_names(count))
    module = module_of(f"mindspore_rec_program_cell_{count}", source)
    cell_class: type[ProgramCell] = getattr(module, f"ProgramCell{count}")
    return cell_class


@functools.cache
def refusal_of(count: int) -> Any:
    """Return a `bprop` for an operator with `count` inputs; the `bprop` raises an error."""
    source = _REFUSAL.format(count=count, names=argument_names(count))
    return module_of(f"mindspore_rec_no_gradient_{count}", source).refuse
