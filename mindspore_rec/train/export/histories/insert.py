# SPDX-License-Identifier: Apache-2.0
"""Replace the marks of an exported model by ONNX nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        for product in readers.get(mark.output.name, ()):
            for output, inputs in _uses(product, mark.factors, makers, readers):
                nodes = Nodes(f"{mark.output.name}/{output}")
                result = mark.build(nodes, *(_typed(nodes, name, makers) for name in inputs))
                nodes.add("Identity", result, output=output)
                made[output] = nodes.made
    every = [each for node in graph.node for each in made.get(node.output[0], [node])]
    replace_nodes(graph, needed_nodes(every, [info.name for info in graph.output]))


def _uses(
    node: Any, factors: Sequence[Any], makers: dict[str, Any], readers: dict[str, list[Any]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the output and the inputs of each use of a mark.

    Several uses may share their first sums, because MindSpore merges equal nodes.

    Args:
        node: node that computes the sum up to the first of the factors.
        factors: Parameters of the inputs that follow.
        makers, readers: nodes that compute and read each value.
    """
    if not factors:
        yield node.output[0], []
        return
    uses = 0
    for sum_ in readers.get(node.output[0], ()):
        other = next((name for name in sum_.input if name != node.output[0]), "")
        product = makers[makers[other].input[0]] if other in makers else None
        if sum_.op_type == "Add" and product is not None and factors[0].name in product.input:
            uses += 1
            (multiplied,) = (name for name in product.input if name != factors[0].name)
            for output, inputs in _uses(sum_, factors[1:], makers, readers):
                yield output, [multiplied, *inputs]
    if not uses:
        raise NotExportableError("MindSpore exports a cell over histories in an unknown form")


def _typed(nodes: Nodes, name: str, makers: dict[str, Any]) -> str:
    """Return the name of an integer before its conversion to float32 by the mark."""
    maker = makers.get(name)
    if maker is None or maker.op_type != "Cast":
        return name
    return nodes.cast(maker.input[0], np.int64)
