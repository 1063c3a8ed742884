# SPDX-License-Identifier: Apache-2.0
"""The directory of a run: full checkpoints, and the deltas that lead from one state to the next.

    000000000120.full/   000000000180.delta/   000000000240.delta/   000000000240.full/

The number is the step. A full checkpoint and a delta of one step lead to the same state.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.checkpoint.contents import check_contents
from mindspore_rec.checkpoint.errors import CheckpointError
from mindspore_rec.checkpoint.manifest import check_files, read_manifest

__all__ = [
    "Entry",
    "entries",
    "entry_at",
    "entry_name",
    "newest_chain",
    "parse_entry_name",
    "verify",
    "verify_chain",
]

_NAME = re.compile(r"([0-9]{12,18})\.(full|delta)")


@dataclass(frozen=True)
class Entry:
    """One checkpoint of a run.

    Attributes:
        path: its directory.
        kind: 'full' or 'delta'.
        step: training steps before it, since the run began.
        run: id of the run.
        state: id of what it leads to.
        parent: of a delta, the id of the state that it starts from; None of a full one.
        manifest: all of the manifest.
    """

    path: Path
    kind: str
    step: int
    run: str
    state: str
    parent: str | None
    manifest: dict[str, Any]


def entry_name(step: int, kind: str) -> str:
    """The name of a checkpoint's directory in its run's.

    Example:
        >>> entry_name(120, "delta")
        '000000000120.delta'
    """
    return f"{step:012d}.{kind}"


def parse_entry_name(name: str) -> tuple[int, str] | None:
    """Step and kind of the checkpoint that a directory of this name holds; None of other names.

    Example:
        >>> parse_entry_name("000000000120.delta")
        (120, 'delta')
    """
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def entry_at(path: Path) -> Entry:
    """The checkpoint in a directory, whose manifest is checked; its files are not.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: the manifest is damaged, or is that of another directory.
    """
    manifest = read_manifest(path)
    if parse_entry_name(path.name) not in (None, (manifest["step"], manifest["kind"])):
        raise CheckpointError(
            f"{path} holds the manifest of step {manifest['step']} ({manifest['kind']}): it is not "
            "in its own directory"
        )
    names = ("kind", "step", "run", "state", "parent")
    return Entry(path=path, manifest=manifest, **{name: manifest[name] for name in names})


def entries(root: Path) -> list[Entry]:
    """All checkpoints of a run, by step; of one step the delta first.

    Raises:
        FileNotFoundError: root is no directory.
        CheckpointError: a manifest is damaged.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"there is no directory of checkpoints at {root}")
    found = [entry_at(path) for path in root.iterdir() if parse_entry_name(path.name)]
    return sorted(found, key=lambda entry: (entry.step, entry.kind))


def newest_chain(root: Path, step: int | None = None) -> list[Entry]:
    """The least that leads to the newest state: a full checkpoint and the deltas after it.

    Args:
        root: the directory of a run.
        step: the state of that step instead of the newest. Default: None.

    Returns:
        In the order in which they apply; empty where there is no checkpoint.

    Raises:
        FileNotFoundError: root is no directory.
        CheckpointError: a delta of the chain is missing or of another run.
        ValueError: no state is of that step.
    """
    found = entries(root)
    if step is not None:
        if step not in {entry.step for entry in found}:
            steps = sorted({entry.step for entry in found})
            raise ValueError(f"{root} has no checkpoint of step {step}; it has {steps}")
        found = [entry for entry in found if entry.step <= step]
    if not found:
        return []
    fulls = [entry for entry in found if entry.kind == "full"]
    if not fulls:
        raise CheckpointError(f"{root} has deltas but no full checkpoint that they start from")
    chain = [fulls[-1]]
    for entry in found:
        if entry.kind == "delta" and entry.step > chain[0].step:
            check_follows(chain[-1], entry)
            chain.append(entry)
    return chain


def check_follows(before: Entry, entry: Entry) -> None:
    """Raises CheckpointError unless `entry` is the delta that starts from the state of `before`."""
    if entry.run != before.run:
        raise CheckpointError(
            f"{entry.path} is of run {entry.run}, {before.path} is of run {before.run}"
        )
    if entry.parent != before.state:
        raise CheckpointError(
            f"{entry.path} starts from state {entry.parent}, but {before.path} (step "
            f"{before.step}) leads to {before.state}: a delta is missing or out of order"
        )


def verify(entry: Entry) -> None:
    """Compares size and checksum of every file of a checkpoint, and looks whether what is in it
    can be read and is what the manifest says: checksums may have been made for other contents.

    Raises:
        CheckpointError: a file is missing or damaged; it is named.
    """
    check_files(entry.path, entry.manifest)
    check_contents(entry.path, entry.manifest)


def verify_chain(chain: Sequence[Entry]) -> None:
    """The same of every checkpoint of a chain."""
    for entry in chain:
        verify(entry)
