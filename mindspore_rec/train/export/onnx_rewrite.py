# SPDX-License-Identifier: Apache-2.0
"""Rewrite an ONNX model from `mindspore.export` for serving.

MindSpore exports a model for one batch size. The export uses an unusual batch size, `BATCH`; this
module replaces `BATCH` in shapes by a size that may vary. In the exported model, a Parameter
replaces the table, and a lookup is a Gather of this Parameter. This module removes lookups from the
model. The results of lookups become inputs of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "BATCH",
    "STARTS",
    "VALUES",
    "WEIGHTS",
    "Cut",
    "NotExportableError",
    "cut_lookups",
    "free_batch",
]

BATCH = 1009  # a prime; no dimension of a network is a multiple of it
VALUES = 1013  # size of an input with rows of variable length
STARTS, WEIGHTS = ":starts", ":weights"  # name suffixes of a lookup's further Parameters
_DYNAMIC = "batch"


class NotExportableError(Exception):
    """Raised if a network cannot be served without MindSpore; the message says why."""


@dataclass(frozen=True)
class Cut:
    """A lookup that was removed from a model.

    The fields are the names of the lookup's Parameter, result and ids in the model. For a lookup of
    bags, `offsets` and `weights` may also be set.
    """

    mark: str
    result: str
    ids: str
    offsets: str | None = None
    weights: str | None = None


def free_batch(model: Any) -> None:
    """Change a model to accept batches of any size.

    Raises:
        NotExportableError: the batch size occurs outside of shapes.
    """
    import onnx
    from onnx import numpy_helper

    graph = model.graph
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    nodes: list[Any] = []
    for tensor in list(graph.initializer):
        value = numpy_helper.to_array(tensor)
        if tensor.name in shapes:
            tensor.CopyFrom(numpy_helper.from_array(_freed(value), tensor.name))
        elif _is_repeated(value):
            graph.initializer.remove(tensor)
            nodes += _repeated(graph, tensor.name, value)
        else:
            _refuse_batch(tensor.name, value)
    for node in graph.node:
        values = [each.t for each in node.attribute if each.type == onnx.AttributeProto.TENSOR]
        if node.op_type != "Constant" or not values:
            nodes.append(node)
            continue
        name, value = node.output[0], numpy_helper.to_array(values[0])
        if name in shapes:
            values[0].CopyFrom(numpy_helper.from_array(_freed(value), values[0].name))
            nodes.append(node)
        elif _is_repeated(value):
            nodes += _repeated(graph, name, value)
        else:
            _refuse_batch(name, value)
            nodes.append(node)
    for node in nodes:
        for attribute in node.attribute:
            if any(_has_batch(each) for each in (attribute.i, *attribute.ints)):
                raise NotExportableError(f"{node.op_type} is for one batch size only")
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    for info in (*graph.input, *graph.output):
        for size in info.type.tensor_type.shape.dim:
            if _has_batch(size.dim_value):
                size.dim_param = _DYNAMIC if size.dim_value == BATCH else ""
    del graph.value_info[:]


def _is_repeated(value: np.ndarray) -> bool:
    """Return whether a constant repeats the same row for each row of the batch."""
    return bool(value.ndim and value.shape[0] == BATCH and (value == value[:1]).all())


def _repeated(graph: Any, name: str, value: np.ndarray) -> list[Any]:
    """Return nodes that repeat a constant's first row once per row of the batch."""
    from onnx import helper, numpy_helper

    initializers = {tensor.name for tensor in graph.initializer}
    first = next(info.name for info in graph.input if info.name not in initializers)

    def constant(what: str, array: np.ndarray) -> Any:
        tensor = numpy_helper.from_array(array)
        return helper.make_node("Constant", [], [f"{name}/{what}"], value=tensor)

    return [
        constant("row", value[:1]),
        constant("rest", np.array(value.shape[1:], np.int64)),
        constant("zero", np.array([0], np.int64)),
        helper.make_node("Shape", [first], [f"{name}/of"]),
        helper.make_node("Gather", [f"{name}/of", f"{name}/zero"], [f"{name}/batch"]),
        helper.make_node("Concat", [f"{name}/batch", f"{name}/rest"], [f"{name}/shape"], axis=0),
        helper.make_node("Expand", [f"{name}/row", f"{name}/shape"], [name]),
    ]


def _has_batch(size: int) -> bool:
    return size != 0 and size % BATCH == 0


def _freed(shape: np.ndarray) -> np.ndarray:
    at = [i for i, size in enumerate(shape.tolist()) if _has_batch(size)]
    if len(at) > 1 or (at and -1 in shape):
        raise NotExportableError(f"a Reshape to {shape.tolist()} has the batch size twice")
    return np.where(np.isin(np.arange(len(shape)), at), -1, shape)


def _refuse_batch(name: str, value: np.ndarray) -> None:
    integers = value.dtype.kind in "iu" and bool(((value != 0) & (value % BATCH == 0)).any())
    if any(_has_batch(size) for size in value.shape) or integers:
        raise NotExportableError(f"the constant {name} is for one batch size only")


def cut_lookups(
    model: Any, marks: Mapping[str, bool], parameters: Sequence[str]
) -> tuple[bytes, bytes, list[Cut]]:
    """Remove lookups from the model, and turn parameters into inputs.

    Args:
        model: ONNX model from `mindspore.export`.
        marks: maps the name of each lookup's Parameter to True if the lookup combines bags. Bags
            are exported as a ReduceSum of the rows.
        parameters: names of the dense parameters, which become inputs of the model.

    Returns:
        Three values. The first value is the dense model, whose inputs are lookup results, other
        inputs and parameters. The second value is the model that computes the ids of lookups; it is
        empty if all ids are inputs. The third value is the list of lookups in the order of the
        model.

    Raises:
        NotExportableError: ids depend on rows or on parameters.
    """
    graph = model.graph
    inputs = [info.name for info in graph.input]
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    makers = {name: node for node in graph.node for name in node.output}
    cuts: list[Cut] = []
    taken: dict[str, str] = {}  # new name of a lookup's result, by its old name
    for node in graph.node:
        if node.op_type != "Gather" or node.input[0] not in marks:
            continue
        mark, result = node.input[0], node.output[0]
        offsets = weights = None
        if marks[mark]:
            result, offsets, weights = _bag(mark, result, readers, makers)
        ids = node.input[1]
        if offsets is not None:
            ids, offsets = (_uncast(name, makers) for name in (ids, offsets))
        if {offsets, weights} - {None} - set(inputs):
            raise NotExportableError("offsets and weights of a bag must be inputs of the network")
        taken[result] = f"lookup_{len(cuts)}"
        cuts.append(Cut(mark, taken[result], ids, offsets, weights))
    made = [node for node in graph.node if node.output[0] not in taken]
    for node in made:
        for i, name in enumerate(node.input):
            node.input[i] = taken.get(name, name)
    for info in graph.output:
        if info.name in taken:
            raise NotExportableError("an output of the network is the result of a lookup itself")
    computed = sorted({cut.ids for cut in cuts} - set(inputs))
    dense = _part(model, made, [info.name for info in graph.output], parameters, cuts)
    rows_and_parameters = {*marks, *parameters, *taken.values()}
    ids = b""
    if computed:
        needed = _needed(made, computed)
        if any(name in rows_and_parameters for node in needed for name in node.input):
            raise NotExportableError("ids of a lookup depend on rows or on parameters")
        ids = _part(model, made, computed, (), ())
    return dense, ids, cuts


def _bag(
    mark: str, rows: str, readers: Mapping[str, list[Any]], makers: Mapping[str, Any]
) -> tuple[str, str | None, str | None]:
    """Return the names of the bags' result, offsets and weights in the exported model.

    Args:
        mark: name of the lookup's Parameter.
        rows: result of the lookup's Gather.
        readers: for the name of each value, the nodes that read the value.
        makers: for the name of each value, the node that computes the value.
    """
    (reader,) = readers[rows]
    weights = None
    if reader.op_type == "Mul":
        weights = _weights(mark, _other(reader, rows), makers)
        rows = reader.output[0]
        (reader,) = readers[rows]
    if reader.op_type != "ReduceSum":
        raise NotExportableError(f"a bag became {reader.op_type}")
    result = reader.output[0]
    for sum_ in readers.get(result, ()):
        if sum_.op_type == "Add":
            starts = makers.get(_other(sum_, result))
            if starts is not None and starts.op_type == "Gather":
                if starts.input[0] == mark + STARTS:
                    return sum_.output[0], starts.input[1], weights
    return result, None, weights


def _other(node: Any, name: str) -> str:
    """Return the other input of a node whose two inputs include `name`."""
    return str(node.input[1] if node.input[0] == name else node.input[0])


def _weights(mark: str, name: str, makers: Mapping[str, Any]) -> str:
    """Return the name of the value that a Mul node multiplies by the weights Parameter."""
    while name in makers:
        node = makers[name]
        if node.op_type == "Mul" and mark + WEIGHTS in node.input:
            return _other(node, mark + WEIGHTS)
        name = node.input[0]
    raise NotExportableError("a bag became a product of something else than its weights")


def _uncast(name: str, makers: Mapping[str, Any]) -> str:
    """Return the name of the value before its type conversions (Cast)."""
    while name in makers and makers[name].op_type == "Cast":
        name = makers[name].input[0]
    return name


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Return the nodes on which outputs depend, in the order of `nodes`."""
    wanted, needed = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            needed.append(node)
            wanted.update(node.input)
    return needed[::-1]


def _part(
    model: Any,
    nodes: Sequence[Any],
    outputs: Sequence[str],
    parameters: Sequence[str],
    cuts: Sequence[Cut],
) -> bytes:
    """Return the model that computes `outputs`."""
    from onnx import TensorProto, helper

    needed = _needed(nodes, outputs)
    read = {name for node in needed for name in node.input}
    infos = [info for info in model.graph.input if info.name in read]
    infos += [
        helper.make_tensor_value_info(cut.result, TensorProto.FLOAT, None)
        for cut in cuts
        if cut.result in read
    ]
    initial = [tensor for tensor in model.graph.initializer if tensor.name in read]
    infos += [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in initial
        if tensor.name in parameters
    ]
    known = {info.name: info for info in model.graph.output}
    results = [
        known.get(name) or helper.make_tensor_value_info(name, TensorProto.INT64, None)
        for name in outputs
    ]
    graph = helper.make_graph(needed, "network", infos, results, initial)
    made = helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=max(4, model.ir_version)
    )
    return bytes(made.SerializeToString())
