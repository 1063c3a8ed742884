# SPDX-License-Identifier: Apache-2.0
"""Replace each mark, which stands for a history operator in an exported model, by ONNX nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec.train.export.histories.marks import Mark
from mindspore_rec.train.export.histories.nodes import OPERATOR_SET, Nodes
from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx_graph import makers_of, needed_nodes, readers_of, replace_nodes

__all__ = ["insert_histories"]


@dataclass(frozen=True)
class _Input:
    """Name of a mark's input, and whether MindSpore converted the input from integers."""

    name: str
    is_whole: bool


def insert_histories(model: Any, marks: Sequence[Mark]) -> None:
    """Replace the marks of a model.

    Raises:
        NotExportableError: the nodes that MindSpore exported for a mark are not recognized.
    """
    (operators,) = model.opset_import
    operators.version = max(operators.version, OPERATOR_SET)
    graph = model.graph
    makers, readers = makers_of(graph.node), readers_of(graph.node)
    made: dict[str, list[Any]] = {}  # nodes that replace the node of an output
    for mark in marks:
        for product in readers.get(mark.output.name, ()):
            for output, inputs in _uses(product, mark, 0, makers, readers):
                nodes = Nodes(f"{mark.output.name}/{output}")
                result = mark.build(nodes, *(_name_of(nodes, each, makers) for each in inputs))
                nodes.add("Identity", result, output=output)
                made[output] = nodes.made
    every = [each for node in graph.node for each in made.get(node.output[0], [node])]
    replace_nodes(graph, needed_nodes(every, [info.name for info in graph.output]))


def _uses(
    node: Any, mark: Mark, k: int, makers: Mapping[str, Any], readers: Mapping[str, list[Any]]
) -> Iterator[tuple[str, list[_Input]]]:
    """For each use of a mark in the graph, yield the output's name and the inputs k, k + 1, ...

    MindSpore merges equal nodes, so several uses of a mark may share the nodes of the mark's first
    inputs.

    Args:
        node: node that computes the partial sum to which input k is added.
        mark: the mark.
        k: index of the mark's next input.
        makers: dict from the name of a value to the node that computes the value.
        readers: dict from the name of a value to the nodes that read the value.
    """
    if k == len(mark.factors):
        yield node.output[0], []
        return
    uses = 0
    for sum_ in readers.get(node.output[0], ()):
        product = _product(sum_, node.output[0], makers)
        for factor in (mark.factors[k], mark.whole_factors[k]):
            if product is not None and factor.name in product.input:
                uses += 1
                (name,) = (each for each in product.input if each != factor.name)
                whole = factor is mark.whole_factors[k]
                for output, inputs in _uses(sum_, mark, k + 1, makers, readers):
                    yield output, [_Input(name, whole), *inputs]
    if not uses:
        raise NotExportableError("MindSpore exports a cell over histories in an unknown form")


def _product(sum_: Any, partial_sum: str, makers: Mapping[str, Any]) -> Any:
    """Return the node of the product in the sum `sum_`; None if there is no product."""
    added = makers.get(next((name for name in sum_.input if name != partial_sum), ""))
    if sum_.op_type != "Add" or added is None or not added.input:
        return None
    return makers.get(added.input[0])


def _name_of(nodes: Nodes, each: _Input, makers: Mapping[str, Any]) -> str:
    """Return an input's name; if MindSpore has converted integers, cast these integers to int64."""
    if not each.is_whole:
        return each.name
    return nodes.cast(makers[each.name].input[0], np.int64)
