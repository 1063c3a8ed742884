# SPDX-License-Identifier: Apache-2.0
"""Record of the changes to a converted network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mindspore import nn

from mindspore_rec.compat.conversion_targets import Target

__all__ = ["ATTRIBUTE", "NEW_KINDS", "Change", "Conversion", "changes_of"]

ATTRIBUTE = "_mindspore_rec_conversions"  # of a network: conversions that can be reverted
NEW_KINDS = {"hash": "HashEmbeddingLookup", "static": "EmbeddingLookup"}


@dataclass(frozen=True)
class Change:
    """One converted embedding.

    Attributes:
        path: path of the embedding in the network.
        aliases: further paths of the cell in the network.
        old_kind: class of the embedding before the conversion.
        new_kind: class of the embedding after the conversion.
        table: name of the embedding's table.
        rows: number of ids in the embedding's vocabulary.
        dim: number of floats in a row.
        bytes: size of the rows in bytes; 0 if an earlier embedding shares the table.
    """

    path: str
    aliases: tuple[str, ...]
    old_kind: str
    new_kind: str
    table: str
    rows: int
    dim: int
    bytes: int


class Conversion:
    """Report of the changes that `convert` made or, in a dry run, would make. `print` shows a
    table.

    The report keeps the old embeddings and their weights until `revert` or `forget` is called.

    Attributes:
        changes: one `Change` per embedding.
        kind: 'hash' or 'static'.
        dry_run: True if `convert` changed nothing.
        stacks: paths of the stacks of dense layers that were fused.

    Example:
        >>> from mindspore import nn
        >>> from mindspore_rec import convert
        >>> net = nn.SequentialCell(nn.Embedding(6, 2), nn.Flatten())
        >>> conversion = convert(net, kind="static", prefix="doc.conversion.")
        path  old kind      new kind         rows  dim  bytes
        0     nn.Embedding  EmbeddingLookup     6    2     48
        >>> conversion.changes[0].table
        'doc.conversion.0'
        >>> conversion.revertible
        True
    """

    def __init__(
        self,
        net: nn.Cell,
        kind: str,
        changes: list[Change],
        dry_run: bool,
        stacks: Mapping[str, nn.SequentialCell],
    ) -> None:
        self.changes = tuple(changes)
        self.kind = kind
        self.stacks = tuple(stacks)
        self.dry_run = dry_run
        self._net: nn.Cell | None = None if dry_run else net
        self._pairs: list[tuple[Target, nn.Cell]] = []
        self._fused: list[tuple[nn.SequentialCell, nn.Cell]] = []

    @property
    def revertible(self) -> bool:
        """True if `revert` can still undo the conversion; always False after a dry run."""
        return self._net is not None

    def forget(self) -> None:
        """Make the conversion final and free the memory of the old weights."""
        if self._net is not None:
            vars(self._net)[ATTRIBUTE].remove(self)
        self._net, self._pairs, self._fused = None, [], []

    def replacements(self, *, back: bool = False) -> dict[int, nn.Cell]:
        """Map `id(cell)` of each old cell to the new cell.

        If `back` is True, map `id(cell)` of each new cell to the old cell.
        """
        pairs = [(target.cell, new) for target, new in self._pairs] + self._fused
        return (
            {id(new): old for old, new in pairs} if back else {id(old): new for old, new in pairs}
        )

    def __str__(self) -> str:
        fused = [f"{path}  fused" for path in self.stacks]
        if not self.changes:
            return "\n".join(fused) or "no embedding matches: nothing is converted"
        cells = [["path", "old kind", "new kind", "rows", "dim", "bytes"]]
        for change in self.changes:
            path = " = ".join((change.path, *change.aliases))
            sizes = [f"{size:,}" for size in (change.rows, change.dim, change.bytes)]
            cells.append([path, change.old_kind, change.new_kind, *sizes])
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = []
        for row in cells:
            left = [text.ljust(width) for text, width in zip(row[:3], widths[:3], strict=True)]
            right = [text.rjust(width) for text, width in zip(row[3:], widths[3:], strict=True)]
            lines.append("  ".join(left + right))
        return "\n".join(lines + fused)

    def __repr__(self) -> str:
        stacks = f", {len(self.stacks)} stacks" if self.stacks else ""
        return f"Conversion(kind={self.kind!r}, {len(self.changes)} embeddings{stacks})"


def changes_of(targets: list[Target], kind: str, prefix: str) -> list[Change]:
    """Return the changes that a conversion makes to `targets`."""
    first: dict[int, str] = {}
    changes = []
    for target in targets:
        shared = id(target.weight) in first
        table = first.setdefault(id(target.weight), prefix + target.path)
        size = 0 if shared else target.rows * target.dim * 4
        changes.append(
            Change(
                target.path,
                tuple(target.paths[1:]),
                target.kind,
                NEW_KINDS[kind],
                table,
                target.rows,
                target.dim,
                size,
            )
        )
    return changes
