# SPDX-License-Identifier: Apache-2.0
"""Replace the marks of an exported model by ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mindspore_rec.train.export.histories.marks import Mark
from mindspore_rec.train.export.histories.nodes import OPERATOR_SET, Nodes
from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx_graph import makers_of, needed_nodes, readers_of, replace_nodes

__all__ = ["insert_histories"]


def insert_histories(model: Any, marks: Sequence[Mark]) -> None:
    """Replace the marks of a model.

    Raises:
        NotExportableError: MindSpore exported a mark in an unknown form.
    """
    (operators,) = model.opset_import
    operators.version = max(operators.version, OPERATOR_SET)
    graph = model.graph
    makers, readers = makers_of(graph.node), readers_of(graph.node)
    made: dict[str, list[Any]] = {}  # nodes that replace the node of an output
    for mark in marks:
        if mark.output.name not in readers:
            continue  # the network does not use the output
        output, inputs = _found(mark, makers, readers)
        nodes = Nodes(mark.output.name)
        result = mark.build(nodes, *(_typed(nodes, name, makers) for name in inputs))
        nodes.add("Identity", result, output=output)
        made[output] = nodes.made
    every = [each for node in graph.node for each in made.get(node.output[0], [node])]
    replace_nodes(graph, needed_nodes(every, [info.name for info in graph.output]))


def _found(mark: Mark, makers: dict[str, Any], readers: dict[str, list[Any]]) -> Any:
    """Return the name of a mark's output, and the names of the mark's inputs."""
    (node,) = readers[mark.output.name]
    inputs = []
    for factor in mark.factors:
        (sum_,) = readers[node.output[0]]
        (product,) = readers[factor.name]
        (total,) = readers[product.output[0]]
        if sum_.op_type != "Add" or total.output[0] not in sum_.input:
            raise NotExportableError(f"a cell over histories became {sum_.op_type}")
        inputs.append(next(name for name in product.input if name != factor.name))
        node = sum_
    return node.output[0], inputs


def _typed(nodes: Nodes, name: str, makers: dict[str, Any]) -> str:
    """Return the name of an integer before its conversion to float32 by the mark."""
    maker = makers.get(name)
    if maker is None or maker.op_type != "Cast":
        return name
    return nodes.cast(maker.input[0], np.int64)
