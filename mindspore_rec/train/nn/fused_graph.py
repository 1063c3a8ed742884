# SPDX-License-Identifier: Apache-2.0
"""FusedGraph: layers that read inputs and each other's outputs, and run as one operator."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.ops.functional import isconstant

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.inputs import MOST_UNITS, check_inputs, widened
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.parts import JoinedPart, LinearPart
from mindspore_rec.train.nn.fused.program import Columns, Program

__all__ = ["FusedGraph"]

_numbers = itertools.count()
_told: set[int] = set()  # numbers of operators about which a warning was given


class FusedGraph(FusedLayer):
    """Runs layers that read each other's outputs as one operator forward and one backward.

    Without fusion, the layers' operators exchange rows through memory. If several layers read an
    input, the input is copied for each layer. If a layer reads the outputs of several layers, an
    operator first joins the outputs. In one operator, each slice of the batch passes through all
    layers.

    The layers are children of the network, so the network determines the names of the layers'
    parameters. The `FusedGraph` itself has no parameters. If the operator cannot be used (see
    `docs/dense.md`), or if a layer's products are not float32, the layers run one after the other.

    Args:
        inputs: maps the name of each input to the input's number of floats per row.
        steps: maps the name of each step to the pair (layer, names of the layer's inputs). An input
            is an entry of `inputs` or the name of an earlier step. Legal layers are `MLP`,
            `CrossNet`, `CrossNetV2`, `CrossNetMix`, `FactorizationMachine`, `DotInteraction`,
            `NumberEmbedding`, `PiecewiseLinear`, `PeriodicEmbedding`, `Sum`, and `nn.Dense` without
            activation. An `nn.Dense` concatenates its inputs. Each layer must be constructed for
            the widths of its inputs.
        outputs: names of the steps whose outputs are returned. Default: the last step.

    Inputs:
        float32 or bfloat16 Tensors `[B, ...]`, in the order of `inputs`. For each Tensor, `inputs`
        states the number of floats per row. The gradient of a bfloat16 input is bfloat16.

    Outputs:
        float32 Tensor `[B, width]`, or a tuple of float32 Tensors if there are several `outputs`.

    Raises:
        TypeError: a layer is not of a legal type.
        ValueError: `inputs` or `steps` is empty, a name is unknown or used twice, a layer was made
            for different widths, or two layers concatenate the same value with different
            neighbours.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import MLP, CrossNet
        >>> class Net(nn.Cell):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.cross, self.deep = CrossNet((8, 2)), MLP((8, 2), (16,))
        ...         self.logit = nn.Dense(26, 1)
        ...         row = ("vectors", "numbers")
        ...         self.graph = FusedGraph(
        ...             {"vectors": 8, "numbers": 2},
        ...             {
        ...                 "crossed": (self.cross, row),
        ...                 "deep": (self.deep, row),
        ...                 "logit": (self.logit, ("crossed", "deep")),
        ...             },
        ...         )
        ...
        ...     def construct(self, vectors, numbers):
        ...         return self.graph(vectors, numbers)
        >>> net = Net()
        >>> net(Tensor(np.ones((3, 4, 2), np.float32)), Tensor(np.ones((3, 2), np.float32))).shape
        (3, 1)
        >>> [p.name for p in net.trainable_params()][-2:]
        ['logit.weight', 'logit.bias']
    """

    def __init__(
        self,
        inputs: Mapping[str, int],
        steps: Mapping[str, tuple[nn.Cell, Sequence[str]]],
        outputs: Sequence[str] = (),
    ) -> None:
        super().__init__("float32")
        if not inputs or not steps:
            raise ValueError("inputs and steps must have at least one entry each")
        widths = [check_int(f"inputs[{n!r}]", w, 1, MOST_UNITS) for n, w in inputs.items()]
        self.in_features = tuple(widths)
        names = [*inputs]
        parts, reads = [], []
        for name, (layer, sources) in steps.items():
            if name in names:
                raise ValueError(f"steps must have other names than inputs, got {name!r} twice")
            read = tuple(_place(names, source, name) for source in sources)
            part = _part_of(name, layer, tuple(widths[i] for i in read))
            parts.append(part)
            reads.append(read)
            names.append(name)
            widths.append(part.out_features)
        self.names = tuple(steps)
        self.widths, self.reads = tuple(widths), tuple(reads)
        self.results = tuple(_place(names, n, "outputs") for n in outputs) or (len(names) - 1,)
        if min(self.results) < len(self.in_features):
            raise ValueError(f"outputs must be names of steps, got {tuple(outputs)}")
        # The layers are children of the network, so the network determines the names of the layers'
        # parameters. `object.__setattr__` prevents the layers from also becoming children of this
        # cell.
        object.__setattr__(self, "parts", nn.CellList(parts, auto_prefix=False))
        self.readers = tuple(sum(i in read for read in reads) for i in range(len(inputs)))
        self.places = _places(self)
        self.moved: tuple[tuple[int, ...], ...] = ()  # offsets of statistics, by layer
        self.owner = type(self).__name__  # the network that warnings name
        self.expects_rows = True  # the operator raises an error if dynamic numbers of rows differ
        self.number = next(_numbers)
        self._fuse()

    def construct(self, *inputs: Tensor) -> Any:
        """Return the outputs."""
        check_inputs(inputs, self.in_features)
        outputs = self._fused(inputs) if self.is_fused else self._one_by_one(inputs)
        return outputs[0] if len(self.results) == 1 else outputs

    def fits(self, inputs: Any, matrices: Any, may_branch: bool) -> Any:
        """Return True if all Tensors have equally many rows and each Tensor has its input's width.

        Static shapes are compared once, when the graph is compiled. For dynamic shapes, the
        function returns True if `expects_rows` is True. If `expects_rows` is False and `may_branch`
        is True, the graph compares dynamic shapes in each step. If `expects_rows` and `may_branch`
        are both False, the function returns False for dynamic shapes.

        Args:
            inputs: the Tensors.
            matrices: for each Tensor, whether it must be a matrix.
            may_branch: whether the compiled graph may branch on the returned value. In branches of
                a graph, MindSpore 2.10 may lose changes of a Parameter.
        """
        differences: Any = 0
        for i in range(len(inputs)):
            if not isconstant(inputs[i].ndim):
                return self.expects_rows
            shape = inputs[i].shape
            if len(shape) == 0 or (matrices[i] and len(shape) != 2):
                return _refuses(self.owner, self.number)
            width: Any = 1
            for k in range(1, len(shape)):
                width = width * shape[k]
            more_floats = width - self.in_features[i]
            differences = differences + more_floats * more_floats
            if i > 0:
                more_rows = shape[0] - inputs[0].shape[0]
                differences = differences + more_rows * more_rows
        if not isconstant(differences):
            if self.expects_rows:
                return True
            return differences == 0 if may_branch else False
        return True if differences == 0 else _refuses(self.owner, self.number)

    def fuses(self) -> list[FusedLayer]:
        """Return the layers of the graph that are FusedLayers."""
        layers = [_layer_of(part) for part in self.parts]
        return [layer for layer in layers if isinstance(layer, FusedLayer)]

    def cells_in(self) -> list[nn.Cell]:
        """Return this cell and all cells in its layers."""
        return [self, *(cell for _, cell in self.parts.cells_and_names())]

    def set_train(self, mode: bool = True) -> FusedGraph:
        """Set the mode of this cell and of its layers; the layers are not children of this cell."""
        self.parts.set_train(mode)
        return super().set_train(mode)

    def _path_of(self, cell: nn.Cell) -> str:
        for name, part in zip(self.names, self.parts, strict=True):
            for path, each in _layer_of(part).cells_and_names():
                if each is cell:
                    return f"{name}.{path}".rstrip(".")
        return ""

    def set_compute_dtype(self, compute_dtype: str) -> FusedGraph:
        """Set the type of the factors in all layers' products, as in `FusedLayer`."""
        for layer in self.fuses():
            layer.set_compute_dtype(compute_dtype)
        return super().set_compute_dtype(compute_dtype)

    def _one_by_one(self, inputs: Any) -> Any:
        """Call the layers one by one, and return the outputs."""
        values: Any = ()
        for i in range(len(inputs)):
            # MindSpore has no kernel that adds bfloat16 gradients, so inputs that several layers
            # read are cast to float32.
            values = (*values, widened(inputs[i]) if self.readers[i] > 1 else inputs[i])
        for k in range(len(self.reads)):
            read: Any = ()
            for place in self.reads[k]:
                read = (*read, values[place])
            values = (*values, self.parts[k](*read))
        outputs: Any = ()
        for place in self.results:
            outputs = (*outputs, values[place])
        return outputs

    def _fused(self, arguments: Any) -> Any:
        for k in range(len(self.reads)):
            arguments = (*arguments, *self.parts[k].learned())
        for k in range(len(self.reads)):
            arguments = (*arguments, *self.parts[k].further())
        if not self.training:
            return self.fused_evaluation(*arguments)[: len(self.results)]
        outputs = self.fused_training(*arguments)
        for k in range(len(self.moved)):
            if len(self.moved[k]) > 0:
                packed = ops.stop_gradient(outputs[len(self.results) + 1])
                self.parts[k].move(packed, self.moved[k])
        return outputs[: len(self.results)]

    def _program(self, training: bool) -> nn.Cell:
        program = Program("float32")
        values = _values(self, program)
        for i in range(len(self.in_features)):
            program.input(values[i])
        moved: list[tuple[int, ...]] = []
        for k, part in enumerate(self.parts):
            places = part.joined(self.reads[k])
            first = values[places[0]]
            x = Columns(first.value, first.offset, sum(self.widths[i] for i in places))
            before = len(program.moved)
            part.add_to(program, x, training, values[len(self.in_features) + k])
            moved.append(tuple(program.moved[before:]))
        if training:
            self.moved = tuple(moved)
        return program.cell([values[i] for i in self.results], training)


@ops.constexpr
def _refuses(owner: str, number: int) -> bool:
    """Return False; warn once per operator, even if the graph compiler calls the function.

    Args:
        owner: name of the network's class.
        number: index of the operator in the network.
    """
    if number not in _told:
        _told.add(number)
        warnings.warn(
            f"{owner} runs layer by layer, which is slower, for its layers read Tensors of "
            "different numbers of rows, or other Tensors than [B, width]. With fuse=False it does "
            "so without this warning",
            RuntimeWarning,
            stacklevel=2,
        )
    return False


def _layer_of(part: nn.Cell) -> nn.Cell:
    return part.layer if isinstance(part, (LinearPart, JoinedPart)) else part


def _place(names: list[str], name: str, reader: str) -> int:
    if name not in names:
        raise ValueError(f"{reader} must read inputs and steps before it, {names}, got {name!r}")
    return names.index(name)


def _part_of(name: str, layer: Any, widths: tuple[int, ...]) -> Any:
    """Return the layer, wrapped if necessary in a cell with the methods of `FusedLayer`."""
    if isinstance(layer, (LinearPart, JoinedPart)):
        return layer
    if type(layer) is nn.Dense and not layer.activation_flag and layer.weight.dtype == ms.float32:
        if layer.in_channels != sum(widths):
            raise ValueError(f"{name} must read {layer.in_channels} floats a row, got {widths}")
        return LinearPart(layer, widths)
    if not isinstance(layer, FusedLayer) or type(layer).add_to is FusedLayer.add_to:
        raise TypeError(f"{name} must be a layer with a fused form, got {type(layer).__name__}")
    if layer.in_features != widths:
        raise ValueError(f"{name} must read inputs of widths {layer.in_features}, got {widths}")
    return layer


def _places(graph: FusedGraph) -> tuple[tuple[int, int], ...]:
    """Return, for each value, the first value of its join and the value's offset in the join.

    Raises:
        ValueError: a value is part of two joins that have different first values, or that need the
            value at different offsets.
    """
    spots: dict[int, tuple[int, int]] = {}
    joins = {part.joined(read) for part, read in zip(graph.parts, graph.reads, strict=True)}
    for join_of in sorted(joins, key=len, reverse=True):
        offset = 0
        for place in join_of:
            spot = (join_of[0], offset)
            if len(join_of) > 1 and spots.setdefault(place, spot) != spot:
                raise ValueError("layers must read the same things side by side, or single ones")
            offset += graph.widths[place]
    return tuple(spots.get(place, (place, 0)) for place in range(len(graph.widths)))


def _values(graph: FusedGraph, program: Program) -> list[Columns]:
    """Return the columns of all inputs and steps; values that a layer joins are adjacent."""
    totals: dict[int, int] = {}
    for place, (first, _) in enumerate(graph.places):
        totals[first] = totals.get(first, 0) + graph.widths[place]
    wholes = {first: program.value(width) for first, width in totals.items()}
    return [
        wholes[first].part(offset, graph.widths[place])
        for place, (first, offset) in enumerate(graph.places)
    ]
