# SPDX-License-Identifier: Apache-2.0
"""Find the embeddings of an ordinary network, and choose embeddings for a conversion."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore import Parameter, mint, nn

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.sequential import FusedSequential

__all__ = ["Target", "choose_targets", "find_stacks", "find_targets", "replace_in", "walk"]


@dataclass(eq=False)
class Target:
    """One of MindSpore's embeddings in a network.

    Attributes:
        cell: the embedding.
        kind: name of the embedding's class, such as `nn.Embedding`.
        base: MindSpore's embedding class, which is the cell's class or a base class of the cell's
            class.
        weight: the Parameter that contains the embedding's rows.
        paths: every path from the network to the cell, in the order of the search.
    """

    cell: nn.Cell
    kind: str
    base: Any
    weight: Parameter
    paths: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Path of the embedding cell in the network, used in messages and in the table's name."""
        return self.paths[0]

    @property
    def rows(self) -> int:
        """Number of ids in the vocabulary."""
        return int(self.weight.shape[0])

    @property
    def dim(self) -> int:
        """Number of floats in a row."""
        return int(self.weight.shape[1])

    @property
    def reads_zeros_outside(self) -> bool:
        """True if lookups return zeros for ids outside the vocabulary, False if lookups raise
        errors.

        On CPU, the Gather of `nn.Embedding` also accepts the ids -rows .. -1, as NumPy does, but no
        table accepts negative ids.
        """
        if self.base is nn.EmbeddingLookup:
            return bool(self.cell.target == "CPU")
        return self.base is nn.Embedding and bool(self.cell.use_one_hot)

    @property
    def padding(self) -> int | None:
        """Id whose row is never trained, or None.

        `nn.Embedding` initializes the padding row with zeros, and then trains the padding row like
        all other rows.
        """
        if self.base is not mint.nn.Embedding or self.cell.padding_idx is None:
            return None
        return int(self.cell.padding_idx) % self.rows


_KINDS = (
    (mint.nn.Embedding, "mint.nn.Embedding", "weight"),
    (nn.EmbeddingLookup, "nn.EmbeddingLookup", "embedding_table"),
    (nn.Embedding, "nn.Embedding", "embedding_table"),
)


def walk(net: nn.Cell, path: str = "") -> Iterator[tuple[str, nn.Cell]]:
    """Yield each cell once per path to the cell; `cells_and_names` yields a cell only once."""
    return _walk(net, path, ())


def _walk(cell: nn.Cell, path: str, above: tuple[nn.Cell, ...]) -> Iterator[tuple[str, nn.Cell]]:
    yield path, cell
    for name, child in cell._cells.items():
        if child is not None and all(child is not other for other in above):
            yield from _walk(child, f"{path}.{name}" if path else name, (*above, cell))


def find_stacks(net: nn.Cell) -> dict[str, nn.SequentialCell]:
    """Find the stacks of dense layers that can be fused, and return a dict from path to stack.

    The result excludes stacks inside a layer that already runs as one operator.
    """
    stacks: dict[int, tuple[str, nn.SequentialCell]] = {}
    taken: set[int] = set()
    for path, cell in walk(net):
        if isinstance(cell, FusedLayer):
            taken.update(id(each) for _, each in walk(cell))
        elif path and FusedSequential.takes(cell):
            stacks.setdefault(id(cell), (path, cell))
    return dict(each for key, each in stacks.items() if key not in taken)


def find_targets(net: nn.Cell, required: bool = True, dense: bool = False) -> list[Target]:
    """Return MindSpore's embeddings in a network, in the order of the network's cells.

    Args:
        net: the network.
        required: True if a network without embeddings is an error. Default: True.
        dense: True if the caller also looked for stacks of dense layers and found none. Default:
            False.

    Raises:
        ValueError: there is no embedding although `required` is True, or the network itself is an
            embedding.
    """
    targets: dict[int, Target] = {}
    for path, cell in walk(net):
        for base, kind, weight in _KINDS:
            if isinstance(cell, base):
                named = kind if type(cell) is base else type(cell).__name__
                new = Target(cell, named, base, getattr(cell, weight))
                targets.setdefault(id(cell), new).paths.append(path)
    if not targets and required:
        kinds = ", ".join(kind for _, kind, _ in _KINDS)
        if not dense:
            raise ValueError(
                f"net must hold an embedding of {kinds}; {type(net).__name__} holds none"
            )
        if FusedSequential.takes(net):
            raise ValueError(
                "net must hold stacks of dense layers, and is itself one, which cannot be replaced "
                "in place: use mindspore_rec.nn.FusedSequential(net)"
            )
        raise ValueError(
            f"net must hold an embedding of {kinds}, or an nn.SequentialCell of nothing but "
            "float32 nn.Dense layers with at most one activation behind each; "
            f"{type(net).__name__} holds neither"
        )
    if id(net) in targets:
        raise ValueError(
            f"net must be a network that holds embeddings; it is itself a {targets[id(net)].kind}, "
            "which can only be replaced in the cell that holds it"
        )
    return list(targets.values())


def choose_targets(
    targets: list[Target],
    names: str | Sequence[str] | None,
    min_size: int | None,
    predicate: Callable[[str, nn.Cell], bool] | None,
) -> list[Target]:
    """Return the targets that match all criteria.

    Raises:
        TypeError: a criterion is of the wrong type.
        ValueError: `min_size` is out of range, or a name does not match any embedding.
    """
    if names is not None:
        targets = _by_name(targets, names)
    if min_size is not None:
        rows = check_int("min_size", min_size, 1, (1 << 63) - 1)
        targets = [target for target in targets if target.rows >= rows]
    if predicate is not None:
        if not callable(predicate):
            raise TypeError(f"predicate must be a function of (path, cell), got {predicate!r}")
        targets = [target for target in targets if _verdict(predicate, target)]
    return targets


def _verdict(predicate: Callable[[str, nn.Cell], bool], target: Target) -> bool:
    verdict = predicate(target.path, target.cell)
    if not isinstance(verdict, bool):
        raise TypeError(f"predicate must return a bool, got {verdict!r} for '{target.path}'")
    return verdict


def _by_name(targets: list[Target], names: str | Sequence[str]) -> list[Target]:
    patterns = [names] if isinstance(names, str) else list(names)
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise TypeError(f"names must be a path or pattern, or several of them, got {names!r}")

    def matches(target: Target, pattern: str) -> bool:
        return any(path == pattern or fnmatch.fnmatchcase(path, pattern) for path in target.paths)

    unknown = [p for p in patterns if not any(matches(target, p) for target in targets)]
    if unknown:
        there = ", ".join(f"'{path}'" for target in targets for path in target.paths)
        raise ValueError(
            f"names must match embeddings of the network, {', '.join(map(repr, unknown))} "
            f"matches none; there are {there}"
        )
    return [target for target in targets if any(matches(target, p) for p in patterns)]


def replace_in(net: nn.Cell, replacements: dict[int, nn.Cell]) -> None:
    """Replace cells everywhere in a network.

    The function bypasses `Cell.__setattr__`, which would rename parameters and refuses some
    containers. In addition to the registered children, the function updates lists of cells, such as
    the list in `SequentialCell`.

    Args:
        net: the network.
        replacements: dict that maps `id(cell)` of each old cell to the new cell.
    """
    for cell in {id(cell): cell for _, cell in walk(net)}.values():
        attributes = vars(cell)
        for name, value in list(attributes.items()):
            replaced = _replaced(value, replacements)
            if replaced is not value:
                attributes[name] = replaced


def _replaced(value: Any, replacements: dict[int, nn.Cell], depth: int = 0) -> Any:
    if isinstance(value, nn.Cell):
        return replacements.get(id(value), value)
    if depth == 8:  # a container that holds itself
        return value
    if isinstance(value, dict):
        for key, item in list(value.items()):
            new = _replaced(item, replacements, depth + 1)
            if new is not item:
                value[key] = new
    elif isinstance(value, list) or type(value) is tuple:
        items = [_replaced(item, replacements, depth + 1) for item in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            if isinstance(value, tuple):
                return tuple(items)
            value[:] = items
    return value
