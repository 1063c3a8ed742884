# SPDX-License-Identifier: Apache-2.0
"""Chooses which steps of a forward pass one operator computes.

Each step belongs to one of three stages. Stage 0 runs before the operator: steps that need no
result of the operator's layers, such as lookups. Stage 1 consists of the steps that the operator
computes. Stage 2 runs after the operator: all remaining steps, unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore import nn, ops

from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fusing.contents import is_of_library
from mindspore_rec.train.nn.fusing.layers import activation_of, is_dense, is_layer, keeps_state
from mindspore_rec.train.nn.fusing.stand_in import NothingToFuseError, StandIn, TraceError
from mindspore_rec.train.nn.fusing.trace import Step, Trace, values_in
from mindspore_rec.train.nn.number_vectors import NumberVectors

__all__ = ["Node", "Plan", "plan"]

_BEFORE, _INSIDE, _BEHIND = 0, 1, 2
_CONCATENATIONS = ("ops.concat", "ops.cat", "mint.concat", "mint.cat")
_ADDITIONS = ("ops.add", "mint.add")
_DRAWS = re.compile("drop|rand|normal|uniform|bernoulli|multinomial|shuffle|gamma|poisson", re.I)


@dataclass
class Node:
    """Layer of the operator.

    Attributes:
        layer: the layer that the operator computes; None for a sum.
        arguments: for each argument of the layer, the indexes of the values to concatenate.
        value: index of the value that the layer returns.
        activation: activation after a linear layer, or 'none'.
        width: floats per row of the returned value.
    """

    layer: nn.Cell | None
    arguments: list[list[int]]
    value: int
    activation: str
    width: int

    @property
    def reads(self) -> list[int]:
        """Indexes of the values that the layer reads."""
        return [number for argument in self.arguments for number in argument]


@dataclass
class Plan:
    """Plan of a forward pass: steps before an operator, layers in the operator, steps after it.

    Attributes:
        before: steps before the operator.
        nodes: layers that the operator computes.
        inputs: the operator's inputs in order. The dict maps the index of each input value to the
            value's width.
        outputs: indexes of the values that the operator returns.
        behind: steps after the operator, in order. If a step reads a concatenation of the
            operator's outputs, `behind` includes the concatenation.
        shapes: maps the index of each output whose rows are not vectors to the shape of a row.
        matrices: indexes of the inputs that must be matrices.
        apart: all steps of the forward pass that are not in `before`, in order. If the operator is
            not used, the steps in `apart` run in place of the operator and the steps in `behind`.
        has_state: whether a step in `apart` may change a state or draw random numbers.
    """

    before: list[Step] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: dict[int, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    behind: list[Step] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    matrices: list[int] = field(default_factory=list)
    apart: list[Step] = field(default_factory=list)
    has_state: bool = False


def plan(trace: Trace) -> Plan:
    """Choose the steps that one operator computes, and return the plan.

    Raises:
        TraceError: none of the steps fits an operator, or the width of a value is unknown.
    """
    try:
        return _Planner(trace, {step.value for step in trace.steps}).plan()
    except NothingToFuseError:
        # Plan again without the layers whose values no step reads, because more of the remaining
        # layers may then fit into the operator.
        return _Planner(trace, _read_values(trace)).plan()


def _read_values(trace: Trace) -> set[int]:
    """Return the indexes of the values on which the result of a trace depends."""
    results = trace.result if isinstance(trace.result, tuple) else (trace.result,)
    values = {*results}
    for step in reversed(trace.steps):
        if step.value in values:
            values.update(step.reads)
    return values


class _Planner:
    """Planner of a trace.

    Args:
        trace: the trace.
        values: indexes of the values that the operator may compute.
    """

    def __init__(self, trace: Trace, values: Container[int]) -> None:
        self.trace = trace
        self.may_compute = values
        self.nodes: dict[int, Node] = {}  # by the value that it returns
        self.stages = dict.fromkeys(range(trace.inputs), _BEFORE)
        self.widths: dict[int, int] = {}
        self.are_vectors: set[int] = set()  # values [B, width]
        self.joins: dict[int, list[int]] = {}  # the parts of a joined value of stage 1
        self.matrices: list[int] = []
        results = trace.result if isinstance(trace.result, tuple) else (trace.result,)
        self.results = results
        self.readers = Counter(results)
        for step in trace.steps:
            self.readers.update(step.reads)
        self.called: set[int] = set()
        self.spots: dict[int, tuple[int, int]] = {}  # first value of the join, and place in it
        self.taken: dict[tuple[int, int], int] = {}  # the value at a spot

    def plan(self) -> Plan:
        before, behind = [], []
        latest: dict[Any, int] = {}  # stage of the last step with a state
        for step in self.trace.steps:
            self._demand(step)
        for step in self.trace.steps:
            stage = max((self.stages[each] for each in step.reads), default=_BEFORE)
            # Steps that change a state or draw random numbers run in the same order as in the
            # trace.
            key = _state_of(step)
            earlier = _BEFORE if key is None else latest.get(key, _BEFORE)
            if max(stage, earlier) != _BEHIND and self._takes(step, stage):
                stage = _INSIDE
            elif max(stage, earlier) != _BEFORE:
                stage = _BEHIND
            self.stages[step.value] = latest[key] = stage
            if stage == _BEFORE:
                before.append(step)
                self._note_shape(step)
            elif stage == _BEHIND:
                behind.append(step)
        if not self.nodes:
            raise NothingToFuseError("it has no layers that one operator could compute")
        made = Plan(before, list(self.nodes.values()))
        self._add_borders(made, behind)
        return made

    # ---- what is known of values

    def _demand(self, step: Step) -> None:
        """Record the widths that a layer requires of its inputs."""
        if step.kind != "cell" or not isinstance(step.target, FusedLayer):
            return
        widths = step.target.in_features
        if is_layer(step.target) and len(widths) == len(step.args):
            for argument, width in zip(step.args, widths, strict=True):
                for number in _only(argument):
                    self.widths.setdefault(number, width)

    def _note_shape(self, step: Step) -> None:
        """For a step before the operator, record the shape of the result if the shape is known."""
        width = _last_width(step)
        if width:
            self.widths[step.value] = width
        if width or _is_flat(step):
            self.are_vectors.add(step.value)

    def _parts(self, argument: Any) -> list[int] | None:
        """Return the indexes of the values in an argument; None if the argument is not traced."""
        numbers = _only(argument)
        return list(self.joins.get(numbers[0], numbers)) if numbers else None

    def _is_matrix(self, number: int) -> bool:
        """Return whether a value is an input of the network, or is known to be a matrix."""
        return number in self.are_vectors or number < self.trace.inputs

    def _note_matrices(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if self.stages[number] == _BEFORE and number not in self.matrices:
                self.matrices.append(number)

    def _fits(self, parts: list[int], width: int) -> bool:
        """Return whether the widths of joined values can add up to `width`.

        If exactly one width is unknown, the function derives and records this width.
        """
        unknown = {part for part in parts if part not in self.widths}
        known = sum(self.widths.get(part, 0) for part in parts)
        if not unknown:
            return known == width
        if len(unknown) > 1 or parts.count(next(iter(unknown))) > 1 or known >= width:
            return False
        self.widths[unknown.pop()] = width - known
        return True

    # ---- steps of the operator

    def _takes(self, step: Step, stage: int) -> bool:
        """Add a step to the operator if possible, and return whether the step was added."""
        if step.value not in self.may_compute:
            return False
        if step.kind == "cell" and is_layer(step.target):
            return self._takes_layer(step)
        if stage != _INSIDE:
            return False
        if step.kind in ("cell", "function") and activation_of(step.target) is not None:
            return self._takes_activation(step)
        if step.kind == "primitive":
            is_join = isinstance(step.target, ops.Concat) and len(step.args) == 1
            return is_join and self._takes_join(step.value, step.args[0], step.target.axis)
        if step.target in _CONCATENATIONS:
            axis = step.args[1] if len(step.args) == 2 else step.kwargs.get("axis", 0)
            axis = step.kwargs.get("dim", axis)
            is_plain = bool(step.args) and len(step.args) + len(step.kwargs) == 2
            return is_plain and self._takes_join(step.value, step.args[0], axis)
        if step.kind == "operator" and step.target == "+" or step.target in _ADDITIONS:
            return self._takes_sum(step)
        return step.kind == "method" and self._takes_reshape(step)

    def _takes_layer(self, step: Step) -> bool:
        layer = step.target
        if step.kwargs or (id(layer) in self.called and keeps_state(layer)):
            return False
        dense = is_dense(layer)
        widths = (layer.in_channels,) if dense else layer.in_features
        arguments = [self._parts(argument) for argument in step.args]
        if len(arguments) != len(widths):
            return False
        reads: list[list[int]] = []
        for parts, width in zip(arguments, widths, strict=True):
            if parts is None or (dense and not all(map(self._is_matrix, parts))):
                return False
            if not self._fits(parts, width):
                return False
            reads.append(parts)
        if not self._stands_beside(layer, reads):
            return False
        if dense:
            self._note_matrices([part for parts in reads for part in parts])
        activation = "none"
        if dense and layer.activation_flag:
            activation = str(activation_of(layer.activation))
        width = layer.out_channels if dense else layer.out_features
        self._add(Node(layer, reads, step.value, activation, width))
        if isinstance(layer, NumberVectors):
            self.are_vectors.discard(step.value)
        self.called.add(id(layer))
        return True

    def _stands_beside(self, layer: nn.Cell | None, arguments: list[list[int]]) -> bool:
        """Return whether a layer's input values can be adjacent; a value cannot be stored twice."""
        if isinstance(layer, FusedLayer):
            arguments = list(layer.joined(tuple(arguments)))
        places = [number for argument in arguments for number in argument]
        if len(places) < 2:
            return True
        spots = {number: (places[0], at) for at, number in enumerate(places)}
        if len(spots) < len(places):
            return False
        for number, spot in spots.items():
            if self.spots.get(number, spot) != spot or self.taken.get(spot, number) != number:
                return False
        self.spots.update(spots)
        self.taken.update({spot: number for number, spot in spots.items()})
        return True

    def _add(self, node: Node) -> None:
        self.nodes[node.value] = node
        self.widths[node.value] = node.width
        self.are_vectors.add(node.value)

    def _takes_activation(self, step: Step) -> bool:
        numbers = _only(step.args[0]) if len(step.args) == 1 and not step.kwargs else ()
        node = self.nodes.get(numbers[0]) if numbers else None
        if node is None or node.layer is None or not is_dense(node.layer):
            return False
        if node.activation != "none" or self.readers[node.value] > 1:
            return False
        del self.nodes[node.value]
        node.value, node.activation = step.value, str(activation_of(step.target))
        self._add(node)
        return True

    def _takes_join(self, value: int, parts: Any, axis: Any) -> bool:
        if not isinstance(parts, (tuple, list)):
            return False
        if axis != 1 and not (axis == -1 and all(n in self.are_vectors for n in values_in(parts))):
            return False
        joined: list[int] = []
        for part in parts:
            each = self._parts(part)
            if each is None:
                return False
            joined += each
        self.joins[value] = joined
        if any(number in self.are_vectors for number in values_in(parts)):
            self.are_vectors.add(value)
            self._note_matrices(joined)
        return True

    def _takes_sum(self, step: Step) -> bool:
        if len(step.args) != 2 or step.kwargs:
            return False
        operands = [_only(each) for each in step.args]
        if not all(operands) or any(each[0] in self.joins for each in operands):
            return False
        (first,), (second,) = operands
        widths = {self.widths.get(first), self.widths.get(second)}
        if len(widths) > 1 or None in widths or first == second:
            return False
        if not self._is_matrix(first) or not self._is_matrix(second):
            return False
        terms = [[first], [second]]
        sum_before = self.nodes.get(first)
        if sum_before is not None and sum_before.layer is None and self.readers[first] == 1:
            if second not in sum_before.reads:
                terms = [*sum_before.arguments, [second]]  # one sum from the left
        if not self._stands_beside(None, terms):
            return False
        if len(terms) > 2:
            del self.nodes[first]
        self._note_matrices((first, second))
        self._add(Node(None, terms, step.value, "none", self.widths[second]))
        return True

    def _takes_reshape(self, step: Step) -> bool:
        """If the step only reshapes rows to vectors, add its value to the plan, and return True."""
        numbers = _only(step.args[0])
        if not numbers or _last_width(step) not in (0, self._width_of(numbers[0])):
            return False
        if not _last_width(step) and not _is_flat(step):
            return False
        self.joins[step.value] = list(self.joins.get(numbers[0], numbers))
        self.widths[step.value] = self._width_of(numbers[0])
        self.are_vectors.add(step.value)
        return True

    def _width_of(self, number: int) -> int:
        return sum(self.widths.get(part, 0) for part in self.joins.get(number, [number]))

    # ---- what goes in and comes out

    def _add_borders(self, made: Plan, behind: list[Step]) -> None:
        """Add the operator's inputs and outputs, and the steps after the operator, to a plan."""
        for node in made.nodes:
            for number in node.reads:
                if self.stages[number] == _BEFORE:
                    if number not in self.widths:
                        raise TraceError("the width of what a layer reads is not known")
                    made.inputs[number] = self.widths[number]
        steps = {step.value: step for step in self.trace.steps}
        wanted = [*self.results, *(number for step in behind for number in step.reads)]
        needed: set[int] = set()
        while wanted:
            number = wanted.pop()
            if self.stages[number] == _INSIDE and number not in needed:
                needed.add(number)
                if number not in self.nodes:
                    wanted += steps[number].reads
        made.outputs = sorted(needed & self.nodes.keys())
        made.behind = [
            step
            for step in self.trace.steps
            if self.stages[step.value] == _BEHIND
            or (step.value in needed and step.value not in self.nodes)
        ]
        for number in made.outputs:
            layer = self.nodes[number].layer
            if isinstance(layer, NumberVectors):
                made.shapes[number] = (layer.numbers, layer.dim)
        if not made.outputs:
            raise NothingToFuseError("nothing reads what its layers compute")
        made.matrices = sorted(self.matrices)
        made.apart = [step for step in self.trace.steps if self.stages[step.value] != _BEFORE]
        made.has_state = any(map(_may_keep_state, made.apart))


def _state_of(step: Step) -> Any:
    """Return an identifier of the state that a step uses, or None if the step uses no state."""
    if step.kind == "cell":
        if not is_of_library(type(step.target).__module__):
            return "a cell of the user"
        if isinstance(step.target, FusedLayer) and not keeps_state(step.target):
            return None
        return id(step.target)
    name = step.target if isinstance(step.target, str) else type(step.target).__name__
    return "random numbers" if _DRAWS.search(name) else None


def _may_keep_state(step: Step) -> bool:
    """Return whether a step may change a state or draw random numbers."""
    if step.kind != "cell":
        return _state_of(step) is not None
    if is_layer(step.target):
        return keeps_state(step.target)
    return activation_of(step.target) is None


def _only(argument: Any) -> tuple[int, ...]:
    """Return `(index,)` if the argument is a value of the trace, otherwise `()`."""
    return (argument.number,) if type(argument) is StandIn else ()


def _is_flat(step: Step) -> bool:
    """Return whether a step flattens each row to a vector, by `x.flatten(start_dim=1)`."""
    values = (*step.args[1:], *step.kwargs.values())
    return step.target == "flatten" and values == (1,) and set(step.kwargs) <= {"start_dim"}


def _last_width(step: Step) -> int:
    """Return the width of a step's result `[B, width]`; 0 if the width is unknown.

    The width is known for `x.reshape((-1, width))`, and for a user's cell with an attribute
    `out_features`.
    """
    if step.kind == "cell":
        width = getattr(step.target, "out_features", 0)
        is_of_user = not is_of_library(type(step.target).__module__)
        return width if type(width) is int and is_of_user else 0
    if step.kind == "method" and step.target in ("reshape", "view") and not step.kwargs:
        shape = step.args[1] if len(step.args) == 2 else step.args[1:]
        if isinstance(shape, (tuple, list)) and len(shape) == 2 and shape[0] == -1:
            return shape[1] if type(shape[1]) is int and shape[1] > 0 else 0
    return 0
