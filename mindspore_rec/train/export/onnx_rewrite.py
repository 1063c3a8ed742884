# SPDX-License-Identifier: Apache-2.0
"""Remove the lookups from an ONNX model that `mindspore.export` wrote, for serving.

In the model that `mindspore.export` writes, each table is a Parameter, and a lookup is a Gather of
this Parameter. This module removes lookups from the model. The results of lookups become inputs of
the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx_graph import makers_of, names_read, needed_nodes, readers_of

__all__ = ["STARTS", "WEIGHTS", "Cut", "cut_lookups"]

STARTS, WEIGHTS = ":starts", ":weights"  # name suffixes of a lookup's further Parameters


@dataclass(frozen=True)
class Cut:
    """A lookup that was removed from a model.

    Each field is a name in the model: `mark` names the Parameter that marks the lookup, `result`
    names the lookup's output, and `ids` names the lookup's ids. `offsets` and `weights` may be set
    if the lookup combines bags.
    """

    mark: str
    result: str
    ids: str
    offsets: str | None = None
    weights: str | None = None


def cut_lookups(
    model: Any, marks: Mapping[str, bool], parameters: Sequence[str]
) -> tuple[bytes, bytes, list[Cut]]:
    """Remove lookups from the model, and turn parameters into inputs.

    Args:
        model: ONNX model from `mindspore.export`.
        marks: maps the name of each lookup's Parameter to True if the lookup combines bags.
            MindSpore exports a bag as a ReduceSum of the rows.
        parameters: names of the dense parameters, which become inputs of the model.

    Returns:
        Three values. The first returned value is the dense model, whose inputs are lookup results,
        other inputs and parameters. The second returned value is the model that computes the ids
        and the offsets of lookups; this model is empty if all ids and offsets are inputs. The third
        returned value is the list of lookups, in the same order as in the model.

    Raises:
        NotExportableError: ids depend on rows or on parameters.
    """
    graph = model.graph
    inputs = [info.name for info in graph.input]
    readers, makers = readers_of(graph.node), makers_of(graph.node)
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
        if weights is not None and weights not in inputs:
            raise NotExportableError("weights of a bag must be inputs of the network")
        taken[result] = f"lookup_{len(cuts)}"
        cuts.append(Cut(mark, taken[result], ids, offsets, weights))
    made = [node for node in graph.node if node.output[0] not in taken]
    for node in made:
        for i, name in enumerate(node.input):
            node.input[i] = taken.get(name, name)
    for info in graph.output:
        if info.name in taken:
            raise NotExportableError("an output of the network is the result of a lookup itself")
    wanted = {cut.ids for cut in cuts} | {cut.offsets for cut in cuts if cut.offsets is not None}
    computed = sorted(wanted - set(inputs))
    dense = _part(model, made, [info.name for info in graph.output], parameters, cuts)
    rows_and_parameters = {*marks, *parameters, *taken.values()}
    ids = b""
    if computed:
        needed = needed_nodes(made, computed)
        if any(names_read(node) & rows_and_parameters for node in needed):
            raise NotExportableError("ids of a lookup depend on rows or on parameters")
        ids = _part(model, made, computed, (), ())
    return dense, ids, cuts


def _bag(
    mark: str, rows: str, readers: Mapping[str, list[Any]], makers: Mapping[str, Any]
) -> tuple[str, str | None, str | None]:
    """Return the names of a bag's result, offsets and weights in the exported model.

    Args:
        mark: name of the Parameter that marks the lookup.
        rows: name of the result of the lookup's Gather.
        readers: dict from the name of a value to the nodes that read the value.
        makers: dict from the name of a value to the node that computes the value.
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
    """For a node with two inputs, return the input other than `name`."""
    return str(node.input[1] if node.input[0] == name else node.input[0])


def _weights(mark: str, name: str, makers: Mapping[str, Any]) -> str:
    """Return the name of a bag's weights.

    In the graph, the weights are multiplied by the Parameter whose name is `mark + WEIGHTS`.
    """
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


def _part(
    model: Any,
    nodes: Sequence[Any],
    outputs: Sequence[str],
    parameters: Sequence[str],
    cuts: Sequence[Cut],
) -> bytes:
    """Return the model that computes `outputs`."""
    from onnx import TensorProto, helper

    needed = needed_nodes(nodes, outputs)
    read = {name for node in needed for name in names_read(node)}
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
