# SPDX-License-Identifier: Apache-2.0
"""fuse: runs the layers of an ordinary network as one operator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from mindspore import nn

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.changed import is_altered, is_watched
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.parts import JoinedPart, LinearPart
from mindspore_rec.train.nn.fused_graph import FusedGraph
from mindspore_rec.train.nn.fusing.layers import activation_of, is_dense, is_layer
from mindspore_rec.train.nn.fusing.plan import Node, Plan, plan
from mindspore_rec.train.nn.fusing.source import IS_USED, Signature, construct_of, forward_lines
from mindspore_rec.train.nn.fusing.stand_in import NothingToFuseError, TraceError
from mindspore_rec.train.nn.fusing.surroundings import constant_of, constants_of_class
from mindspore_rec.train.nn.fusing.trace import (
    BY_LAYERS,
    Trace,
    classes_of,
    is_of_user,
    may_enter,
    trace,
)
from mindspore_rec.train.nn.sum import Sum

__all__ = ["apply_fuse", "fuse", "is_fused"]

_FUSION = "_mindspore_rec_fusion"
_CHILD = "fused_graph"
_FEWEST_LAYERS = 2  # a single layer is an operator by itself

_Cell = TypeVar("_Cell", bound=nn.Cell)


def fuse(cell: _Cell, inputs: int | None = None) -> _Cell:
    """Let the layers of a network run as one operator forward and one backward.

    `fuse` runs `construct` in Python, once for each combination of the value of `self.training` and
    the number of optional arguments passed. The arguments are stand-ins, which record the
    operations on Tensors. One `FusedGraph` replaces the layers that an operator can compute: `MLP`,
    `CrossNet`, `CrossNetV2`, `CrossNetMix`, `FactorizationMachine`, `DotInteraction`,
    `NumberEmbedding`, `PiecewiseLinear`, `PeriodicEmbedding`, `Sum` and `nn.Dense`. The
    `FusedGraph` also computes sums, joins (`ops.concat`), and activations after `nn.Dense`. All
    other steps of `construct`, such as lookups and a final sigmoid, run unchanged. If the layers
    read Tensors with different numbers of rows, MindSpore's layers compute the network, with one
    warning. In a graph with dynamic shapes, the operator raises an error if the numbers of rows
    differ.

    The cell stays the same object: layers, parameters, names, checkpoints and exports do not
    change. The cell's class becomes a subclass of the old class, with a new `construct`. If
    `FusedGraph` cannot use its operator, MindSpore's layers compute the network. MindSpore's layers
    compute the network, with one warning, if a cell between the network and the layers has changed
    since the call of `fuse`. A cell has changed if its type, mode, hooks or children differ. A cell
    has also changed if the cell reads an attribute or a global name and this name now refers to
    another number or function. If a call passes an argument that is not a Tensor, MindSpore's
    layers compute the network, without a warning. Omitted arguments do not prevent the use of the
    operator.

    Args:
        cell: the network, not yet compiled.
        inputs: number of inputs of a `construct` that takes `*inputs`. Default: None, which means
            that `construct` has no `*inputs`.

    Returns:
        The cell itself.

    Raises:
        TypeError: `cell` is not a cell, or is a container of cells; or `inputs` is not an int.
        ValueError: `construct` cannot be traced, or has no layer that an operator can compute.

    Example:
        >>> import numpy as np
        >>> from mindspore import Tensor, ops
        >>> from mindspore_rec.nn import MLP, CrossNet, fuse
        >>> class Net(nn.Cell):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.cross, self.deep = CrossNet((8, 2)), MLP((8, 2), (16,))
        ...         self.logit = nn.Dense(26, 1)
        ...
        ...     def construct(self, vectors, numbers):
        ...         crossed, deep = self.cross(vectors, numbers), self.deep(vectors, numbers)
        ...         return self.logit(ops.concat((crossed, deep), 1))
        >>> net = fuse(Net())
        >>> net(Tensor(np.ones((3, 4, 2), np.float32)), Tensor(np.ones((3, 2), np.float32))).shape
        (3, 1)
        >>> net.fused_graph.is_fused, [p.name for p in net.trainable_params()][-2:]
        (True, ['logit.weight', 'logit.bias'])
    """
    if not isinstance(cell, nn.Cell) or isinstance(cell, (nn.SequentialCell, nn.CellList)):
        raise TypeError(
            "cell must be a cell with a construct of its own; an nn.SequentialCell is fused as a "
            f"child of one, got {type(cell).__name__}"
        )
    if inputs is not None:
        check_int("inputs", inputs, 1, 1 << 16)
    _undo(cell)
    try:
        _fuse(cell, Signature(cell, inputs), True)
    except TraceError as error:
        raise ValueError(f"{type(cell).__name__} cannot be fused: {error}") from None
    return cell


def is_fused(cell: nn.Cell) -> bool:
    """Return whether `fuse` has been called for a cell.

    Example:
        >>> is_fused(nn.Dense(2, 1))
        False
    """
    return _FUSION in vars(cell)


def apply_fuse(network: nn.Cell, fuse: bool) -> None:
    """Fuse a network of several layers; `RecModel` and `TrainStep` call this function.

    The following networks stay unchanged, without a warning: containers, train steps, cells of a
    library, cells with a `bprop` or a compiled `construct`, networks with fewer than two unfused
    layers of `mindspore_rec.nn`, and networks without layers that one operator could compute.

    Args:
        network: the network.
        fuse: whether to fuse the layers; if False, the network stays unchanged.

    Raises:
        TypeError: `fuse` is not a bool.

    Warns:
        RuntimeWarning: the network cannot be fused, so each layer stays a separate operator.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(2, 1))
        >>> apply_fuse(net, True)
        >>> is_fused(net)
        False
    """
    if not isinstance(fuse, bool):
        raise TypeError(f"fuse must be a bool, got {fuse!r}")
    is_container = isinstance(network, (nn.SequentialCell, nn.CellList))
    if not fuse or is_container or not may_enter(network):
        return
    cells = list(network.cells_and_names())
    if any(isinstance(cell, nn.Optimizer) for _, cell in cells):
        return  # a train step
    fused = {id(inside) for _, cell in cells if is_fused(cell) for inside in _cells_in(cell)}
    layers = [c for _, c in cells if isinstance(c, FusedLayer) and is_layer(c)]
    if sum(id(layer) not in fused for layer in layers) < _FEWEST_LAYERS:
        return
    try:
        _fuse(network, Signature(network, None), False)
    except NothingToFuseError:
        return
    except Exception as error:  # the network can train without an operator
        warnings.warn(
            f"the layers of {type(network).__name__} are operators of their own, which is slower, "
            f"for it cannot be fused: {error}. With fuse=False they are so without this warning",
            RuntimeWarning,
            stacklevel=3,
        )


def _cells_in(cell: nn.Cell) -> list[nn.Cell]:
    return [inside for _, inside in cell.cells_and_names()]


class _Child(NamedTuple):
    """A cell inside a parent cell whose `construct` was traced."""

    parent: nn.Cell
    name: str
    cell: nn.Cell


class _Fusion:
    """Records a network's cells, attributes and operators at the time of its trace."""

    def __init__(self, network: nn.Cell, traces: list[Trace], has_modes: bool) -> None:
        self.entered = list({id(each): each for t in traces for each in t.entered}.values())
        self.children = [each for cell in self.entered for each in _children_of(cell)]
        self.attributes = [(cell, _attributes_of(cell)) for cell in self.entered]
        self.classes = [(kind, constants_of_class(kind)) for kind in classes_of(self.entered)]
        self.words = {each for t in traces for each in t.words}
        self.names = [each for t in traces for each in t.names]
        self.has_modes = has_modes  # whether a forward pass depends on `training`
        self.paths = {id(cell): name for name, cell in network.cells_and_names()}
        self.graphs: list[FusedGraph] = []
        self._warned = False

    def is_used(self, network: nn.Cell) -> bool:
        """Return whether operators compute the network's layers; if not, warn once."""
        change = self._change(network)
        if change is None:
            return all(graph.is_fused for graph in self.graphs if not _can_fall_back(graph))
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{type(network).__name__} runs layer by layer, which is slower, for {change}",
                RuntimeWarning,
                stacklevel=2,
            )
        return False

    def _change(self, network: nn.Cell) -> str | None:
        for cell in self.entered:
            name = f"'{self.paths.get(id(cell), '')}' in it, of type {type(cell).__name__},"
            if cell is not network and is_watched(cell):
                return f"{name} has hooks"
            if is_altered(cell):
                return f"{name} has another type or is computed again"
            if self.has_modes and cell.training != network.training:
                return f"{name} is in another mode"
        for each in self.names:
            if each.is_changed():
                return f"'{each.name}' of its module has another value than it had: call fuse again"
        for kind, constants in self.classes:
            if constants_of_class(kind) != constants:
                return f"an attribute of the class {kind.__name__} has changed: call fuse again"
        for child in self.children:
            if activation_of(child.cell) and (is_watched(child.cell) or is_altered(child.cell)):
                return f"'{self.paths.get(id(child.cell), '')}' in it has hooks or another type"
            if child.parent._cells.get(child.name) is not child.cell:
                name = f"{self.paths.get(id(child.parent), '')}.{child.name}".lstrip(".")
                return f"'{name}' in it is another cell than it was"
        known = {(id(child.parent), child.name) for child in self.children}
        for child in [each for cell in self.entered for each in _children_of(cell)]:
            if (id(child.parent), child.name) not in known:
                name = f"{self.paths.get(id(child.parent), '')}.{child.name}".lstrip(".")
                return f"'{name}' in it is a new cell: call fuse again"
        for cell, before in self.attributes:
            if name := self._changed_name(_attributes_of(cell), before):
                where = f"{self.paths.get(id(cell), '')}.{name}".lstrip(".")
                return f"'{where}' has another value than it had: call fuse again"
        return None

    def _changed_name(self, now: dict[str, Any], before: dict[str, Any]) -> str:
        """Return the name of the first attribute that differs between `now` and `before`, or ''."""
        if now == before:
            return ""
        for name in [*before, *now]:
            is_new = name not in before
            if is_new and name not in self.words:
                continue  # `construct` does not read it
            if is_new or name not in now or now[name] != before[name]:
                return name
        return ""


def _can_fall_back(graph: FusedGraph) -> bool:
    """Return whether the graph can also run the layers one by one, as `construct` does."""
    return graph.expects_rows and not any(isinstance(part, JoinedPart) for part in graph.parts)


def _attributes_of(cell: nn.Cell) -> dict[str, Any]:
    """Return a cell's attributes by name: numbers, functions and containers, in comparable form."""
    attributes = {
        name: constant_of(value)
        for name, value in vars(cell).items()
        if is_of_user(name) and not isinstance(value, FusedGraph)
    }
    for name, parameter in cell._params.items():
        attributes[name] = parameter is None
    return attributes


def _children_of(parent: nn.Cell) -> Iterator[_Child]:
    """Yield the children of a cell, and the cells in its CellLists and CellDicts."""
    for name, cell in parent._cells.items():
        if cell is not None:
            yield _Child(parent, name, cell)
            if isinstance(cell, (nn.CellList, nn.CellDict)):
                yield from _children_of(cell)


def _fuse(network: nn.Cell, signature: Signature, expects_rows: bool) -> None:
    total = len(signature.names)
    traces: list[Trace] = []
    blocks: list[tuple[str, list[str]]] = []
    operators = _Operators(network)
    has_modes = False
    problem: TraceError | None = None
    for count in range(total, signature.required - 1, -1):
        is_given = tuple(k < count for k in range(total))
        try:
            pair = [trace(network, is_given, training) for training in (True, False)]
            modes = [_lines(signature, each, operators) for each in pair]
        except TraceError as error:
            problem = problem or error
            continue
        traces += pair
        lines = modes[0]
        if modes[0] != modes[1]:
            has_modes = True
            lines = ["if self.training:", *(f"    {line}" for line in modes[0]), *modes[1]]
        blocks.append((signature.condition(count), lines))
    if problem is not None and not blocks:
        raise problem
    if len(blocks) == total - signature.required + 1 and not signature.is_full:
        if all(lines == blocks[0][1] for _, lines in blocks):
            blocks = [(signature.condition_of_any(), blocks[0][1])]
    kind: Any = type(network)
    attributes = {
        "construct": construct_of(signature, blocks),
        "add_flags_recursive": _add_flags_recursive,
        BY_LAYERS: kind.construct,
        IS_USED: property(_is_used),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    try:
        fused_kind = type(kind)(kind.__name__, (_Quiet, kind), attributes)
        network.__class__ = fused_kind
    except TypeError as error:
        raise TraceError(f"its class can have no subclass here: {error}") from error
    fusion = _Fusion(network, traces, has_modes)
    for name, graph in operators.graphs.values():
        # Use `object.__setattr__`, because `cells()` of the network must not yield the operator.
        # Use `nn.Cell.set_train`, because the operator's own `set_train` would also set the mode of
        # the layers.
        object.__setattr__(network, name, nn.Cell.set_train(graph, network.training))
        graph.owner, graph.expects_rows = kind.__name__, expects_rows
        fusion.graphs.append(graph)
        graph.number = fusion.graphs[0].number  # one warning for all
    vars(network)[_FUSION] = fusion


class _Quiet:
    """First base class of a fused class; prevents a call of the old class's `__init_subclass__`."""

    def __init_subclass__(cls) -> None:
        """Do nothing."""


def _class_before(network: nn.Cell) -> Any:
    """Return the class that a fused network had before `fuse`."""
    return next(base for base in type(network).__bases__ if base is not _Quiet)


def _add_flags_recursive(network: nn.Cell, **flags: Any) -> nn.Cell:
    """Set flags, such as the mode, in a network and in its operators."""
    _class_before(network).add_flags_recursive(network, **flags)
    if is_fused(network):
        for graph in vars(network)[_FUSION].graphs:
            graph.add_flags_recursive(**flags)
    return network


def _is_used(network: nn.Cell) -> bool:
    fusion: _Fusion | None = vars(network).get(_FUSION)
    return fusion is not None and fusion.is_used(network)  # None: another network of its type


def _undo(network: nn.Cell) -> None:
    """Undo `fuse` on a network: remove the operators and restore the network's class."""
    fusion = vars(network).pop(_FUSION, None)
    if fusion is not None:
        network.__class__ = _class_before(network)
        graphs = {id(graph) for graph in fusion.graphs}
        for name in [n for n, value in vars(network).items() if id(value) in graphs]:
            del vars(network)[name]


def _paths(network: nn.Cell) -> dict[int, str]:
    """Return the path of each cell and primitive as Python text, such as 'self.towers[0]'.

    A cell whose name is not a Python identifier, such as the child '0' of an ordinary cell, has no
    path.
    """
    paths: dict[int, str] = {}

    def add(cell: nn.Cell, text: str) -> None:
        if id(cell) in paths:
            return
        paths[id(cell)] = text
        for attribute, primitive in cell._primitives.items():
            paths[id(primitive)] = f"{text}.{attribute}"
        for place, (name, child) in enumerate(cell._cells.items()):
            if child is None:
                continue
            if isinstance(cell, nn.CellDict):
                add(child, f"{text}[{name!r}]")
            elif isinstance(cell, (nn.CellList, nn.SequentialCell)):
                add(child, f"{text}[{place}]")
            elif name.isidentifier():
                add(child, f"{text}.{name}")

    add(network, "self")
    return paths


class _Operators:
    """Operators of a network.

    Attributes:
        cells: maps the `id` of each cell to the cell's path as Python text, such as
            'self.towers[0]'.
        names: maps the `id` of each cell to the cell's name, such as 'towers.0'.
        graphs: maps the key (layers, inputs, outputs) of each operator to the operator's name and
            cell.
    """

    def __init__(self, network: nn.Cell) -> None:
        self._network = network
        self.cells = _paths(network)
        self.names = {id(cell): name for name, cell in network.cells_and_names()}
        self.graphs: dict[Any, tuple[str, FusedGraph]] = {}

    def name_of(self, made: Plan) -> str:
        """Return the name of the operator for a plan; if necessary, make the operator."""
        layers = tuple(
            (id(node.layer), node.activation, node.value, *map(tuple, node.arguments))
            for node in made.nodes
        )
        key = (*layers, tuple(made.inputs.items()), tuple(made.outputs))
        if key not in self.graphs:
            name = _CHILD
            while hasattr(self._network, name) or name in dict(self.graphs.values()):
                name += "_"
            self.graphs[key] = (name, self._made(made))
        return self.graphs[key][0]

    def _made(self, made: Plan) -> FusedGraph:
        names = {number: f"value {number}" for number in made.inputs}
        steps: dict[str, tuple[Any, list[str]]] = {}
        widths = dict(made.inputs)
        for node in made.nodes:
            name = "sum" if node.layer is None else self.names.get(id(node.layer), "")
            while name in steps:
                name += "'"
            steps[name] = (_part_of(node, widths), [names[number] for number in node.reads])
            names[node.value] = name
            widths[node.value] = node.width
        inputs = {names[number]: width for number, width in made.inputs.items()}
        return FusedGraph(inputs, steps, [names[number] for number in made.outputs])


def _lines(signature: Signature, traced: Trace, operators: _Operators) -> list[str]:
    """Return the source lines of a forward pass that calls an operator."""
    made = plan(traced)
    graph = f"self.{operators.name_of(made)}"
    return forward_lines(operators.cells, signature, made, graph, traced.result)


def _part_of(node: Node, widths: dict[int, int]) -> nn.Cell:
    if node.layer is None:
        return Sum(len(node.arguments), node.width)
    if is_dense(node.layer):
        return LinearPart(node.layer, tuple(widths[n] for n in node.reads), node.activation)
    if all(len(argument) == 1 for argument in node.arguments):
        return node.layer
    assert isinstance(node.layer, FusedLayer)
    return JoinedPart(node.layer, tuple(tuple(widths[n] for n in a) for a in node.arguments))
