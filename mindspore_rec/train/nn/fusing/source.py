# SPDX-License-Identifier: Apache-2.0
"""Writes the source text of a `construct` in which an operator replaces layers.

MindSpore's graph compiler reads source text, so the text is saved as a module.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
from mindspore import nn

from mindspore_rec.train.nn.fused.cell import module_of
from mindspore_rec.train.nn.fusing.plan import Plan
from mindspore_rec.train.nn.fusing.stand_in import StandIn, TraceError
from mindspore_rec.train.nn.fusing.trace import BY_LAYERS, Step

__all__ = ["IS_USED", "Signature", "construct_of", "forward_lines"]

IS_USED = "runs_as_operator"
"""Name of the property that says whether the operator is used."""

_HEADER = '''# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a network with an operator for its layers; written by mindspore_rec."""

import mindspore
from mindspore import mint, ops


def construct(self, {arguments}):
    """Return what the layers return."""
    if not self.{is_used}:
        return {by_layers}
'''
_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "bool_")
_OF_MODULE = ("mindspore", "mint", "ops", "isinstance")  # names in the text that are no arguments
_PLAIN = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Signature:
    """Arguments of a `construct`.

    Args:
        cell: the cell.
        inputs: number of arguments if `construct` has the parameter `*inputs`, otherwise None.

    Attributes:
        names: for each argument, the text that stands for the argument in the method's body.
        required: number of arguments without a default.
        text: source text of the parameter list in the method's definition.

    Raises:
        TraceError: the trace does not support the arguments of `construct`.
    """

    def __init__(self, cell: nn.Cell, inputs: int | None) -> None:
        method = getattr(type(cell), BY_LAYERS, type(cell).construct)
        parameters = list(inspect.signature(method).parameters.values())[1:]
        if len(parameters) == 1 and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
            if inputs is None:
                raise TraceError("its construct takes any number of inputs: give it as `inputs`")
            name = parameters[0].name
            self.names = tuple(f"{name}[{i}]" for i in range(inputs))
            self.required, self.text = inputs, f"*{name}"
            self.by_layers = f"self.{BY_LAYERS}(*{name})"
            self.is_full = f"len({name}) == {inputs} and {_are_tensors(self.names)}"
            return
        for each in parameters:
            if each.kind not in _PLAIN:
                raise TraceError(f"its construct has the argument '{each}'")
            if each.default not in (inspect.Parameter.empty, None):
                raise TraceError(f"'{each.name}' of its construct has a default other than None")
            if each.name in _OF_MODULE:
                raise TraceError(f"its construct has an argument named '{each.name}'")
        if inputs is not None and inputs != len(parameters):
            raise TraceError(f"its construct has {len(parameters)} inputs, and not {inputs}")
        self.names = tuple(each.name for each in parameters)
        self.required = sum(each.default is inspect.Parameter.empty for each in parameters)
        self.text = ", ".join(
            name if k < self.required else f"{name}=None" for k, name in enumerate(self.names)
        )
        self.by_layers = f"self.{BY_LAYERS}({', '.join(self.names)})"
        self.is_full = ""

    def condition(self, count: int) -> str:
        """Return a Python condition: the first `count` arguments are Tensors, the rest are None."""
        if self.is_full:
            return self.is_full
        missing = [f"{name} is None" for name in self.names[count:]]
        return " and ".join([*filter(None, [_are_tensors(self.names[:count])]), *missing])

    def condition_of_any(self) -> str:
        """Return a Python condition that is true if the required arguments are Tensors.

        Each optional argument must be a Tensor or None.
        """
        optional = [f"({n} is None or {_are_tensors([n])})" for n in self.names[self.required :]]
        required = _are_tensors(self.names[: self.required])
        return " and ".join([*filter(None, [required]), *optional])


def _are_tensors(names: Sequence[str]) -> str:
    """Return a Python condition: all arguments are Tensors. Without arguments, return ''."""
    return " and ".join(f"isinstance({name}, mindspore.Tensor)" for name in names)


def forward_lines(
    cells: Mapping[int, str], signature: Signature, made: Plan, graph: str, results: Any
) -> list[str]:
    """Return the source lines of a forward pass, without indentation.

    Args:
        cells: maps the `id` of each cell and primitive to its path, such as 'self.deep'.
        signature: arguments of the network's `construct`.
        made: the plan of the forward pass.
        graph: Python expression that refers to the operator.
        results: index of the returned value, or a tuple of indexes.

    Raises:
        TraceError: an argument of a step cannot be written as text.
    """
    names = signature.names
    texts = dict(enumerate(names))
    prefix = "value_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    texts |= {step.value: f"{prefix}{step.value}" for step in (*made.before, *made.apart)}

    def lines_of(steps: Sequence[Step]) -> list[str]:
        return [f"{texts[step.value]} = {_text(step, texts, cells)}" for step in steps]

    read = "".join(f"{texts[number]}, " for number in made.inputs)
    matrices = "".join(f"{number in made.matrices}, " for number in made.inputs)
    outputs = ", ".join(texts[number] for number in made.outputs)
    inside = [f"{outputs} = {graph}({read.removesuffix(', ')})"]
    for number, shape in made.shapes.items():
        text = texts[number]
        inside.append(f"{text} = {text}.reshape((-1, {', '.join(map(str, shape))}))")
    returned = results if isinstance(results, tuple) else (results,)
    text = ", ".join(texts[number] for number in returned)
    end = f"return ({text},)" if isinstance(results, tuple) else f"return {text}"
    return [
        *lines_of(made.before),
        f"if {graph}.fits(({read}), ({matrices}), {not made.has_state}):",
        *(f"    {line}" for line in [*inside, *lines_of(made.behind), end]),
        *lines_of(made.apart),
        end,
    ]


def construct_of(signature: Signature, blocks: Sequence[tuple[str, Sequence[str]]]) -> Any:
    """Return the function `construct`.

    Args:
        signature: arguments of `construct`.
        blocks: pairs (condition, source lines to run if the condition is true). The source lines of
            each block end with a `return`. If no condition is true, the network runs layer by
            layer.
    """
    text = _HEADER.format(arguments=signature.text, is_used=IS_USED, by_layers=signature.by_layers)
    for condition, lines in blocks:
        indent = "        " if condition else "    "
        text += f"    if {condition}:\n" if condition else ""
        text += "".join(f"{indent}{line}\n" for line in lines)
    if not blocks or blocks[-1][0]:
        text += f"    return {signature.by_layers}\n"
    return _function(text)


@functools.cache
def _function(text: str) -> Any:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return module_of(f"mindspore_rec_fused_{digest}", text).construct


def _text(step: Step, texts: Mapping[int, str], cells: Mapping[int, str]) -> str:
    if step.kind == "item":
        return f"{_value(step.args[0], texts)}[{_place(step.args[1], texts)}]"
    positional = [_value(each, texts) for each in step.args]
    named = [f"{name}={_value(each, texts)}" for name, each in step.kwargs.items()]
    if step.kind in ("cell", "primitive"):
        if id(step.target) not in cells:
            raise TraceError(f"it calls a {type(step.target).__name__} that is no attribute")
        return f"{cells[id(step.target)]}({', '.join([*positional, *named])})"
    if step.kind == "method":
        return f"{positional[0]}.{step.target}({', '.join([*positional[1:], *named])})"
    if step.kind == "function":
        return f"{step.target}({', '.join([*positional, *named])})"
    operands = [f"({each})" if each.startswith("-") else each for each in positional]
    return f"({operands[0]} {step.target} {operands[1]})"


def _value(value: Any, texts: Mapping[int, str]) -> str:
    """Return the Python source text of a value."""
    if type(value) is StandIn:
        return texts[value.number]
    if value is None or value is ... or type(value) in (bool, int, str):
        return "..." if value is ... else repr(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is tuple:
        return f"({''.join(f'{_value(each, texts)}, ' for each in value)})"
    if type(value) is list:
        return f"[{', '.join(_value(each, texts) for each in value)}]"
    for name in _DTYPES:
        if isinstance(value, ms.Type) and value == getattr(ms, name):
            return f"mindspore.{name}"
    raise TraceError(f"it has a {type(value).__name__} beside a Tensor")


def _place(place: Any, texts: Mapping[int, str]) -> str:
    """Return the text between the square brackets of an index."""
    if type(place) is tuple and place:
        return ", ".join(_place(each, texts) for each in place)
    if type(place) is not slice:
        return _value(place, texts)
    ends = (place.start, place.stop, *(() if place.step is None else (place.step,)))
    return ":".join("" if each is None else _value(each, texts) for each in ends)
