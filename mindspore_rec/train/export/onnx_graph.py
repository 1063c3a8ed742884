# SPDX-License-Identifier: Apache-2.0
"""Find nodes of an ONNX graph: producers of values, readers of values, and needed nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["makers_of", "names_read", "needed_nodes", "readers_of", "replace_nodes"]


def makers_of(nodes: Iterable[Any]) -> dict[str, Any]:
    """Return a dict from the name of a value to the node that computes the value."""
    return {name: node for node in nodes for name in node.output}


def readers_of(nodes: Iterable[Any]) -> dict[str, list[Any]]:
    """Return a dict from the name of a value to the nodes that read the value."""
    readers: dict[str, list[Any]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def names_read(node: Any) -> set[str]:
    """Return the names of all values that a node reads, including values read in a loop's body."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inside = attribute.g
            made = {info.name for info in inside.input}
            made.update(name for each in inside.node for name in each.output)
            names.update(*(names_read(each) for each in inside.node))
            names -= made
    return names


def needed_nodes(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Return the nodes that are needed to compute `outputs`, in the order of `nodes`."""
    wanted, needed = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            needed.append(node)
            wanted.update(names_read(node))
    return needed[::-1]


def replace_nodes(graph: Any, nodes: Sequence[Any]) -> None:
    """Replace all nodes of a graph by `nodes`, which may include nodes of the graph."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
