# SPDX-License-Identifier: Apache-2.0
"""Directory of a run: full checkpoints, and deltas that lead from one state to the next.

    000000000120.full/   000000000180.delta/   000000000240.delta/   000000000240.full/

The number in a directory's name is the step of the checkpoint. Loading a full checkpoint, or
applying a delta of the same step, leads to the same state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.common.run.contents import check_contents
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import MANIFEST, check_files, read_manifest

__all__ = [
    "Entry",
    "chain_at",
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
        path: directory of the checkpoint.
        kind: 'full' or 'delta'.
        step: number of training steps since the run began.
        run: id of the run.
        state: id of the state after the checkpoint is loaded or applied.
        parent: id of the state from which a delta starts; None for a full checkpoint.
        manifest: the whole manifest.
    """

    path: Path
    kind: str
    step: int
    run: str
    state: str
    parent: str | None
    manifest: dict[str, Any]


def entry_name(step: int, kind: str) -> str:
    """Return the name of a checkpoint's directory inside its run's directory.

    Example:
        >>> entry_name(120, "delta")
        '000000000120.delta'
    """
    return f"{step:012d}.{kind}"


def parse_entry_name(name: str) -> tuple[int, str] | None:
    """Return the step and kind that a checkpoint directory's name contains; None for other names.

    Example:
        >>> parse_entry_name("000000000120.delta")
        (120, 'delta')
    """
    match = _NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def entry_at(path: Path) -> Entry:
    """Return the checkpoint in a directory. The manifest is checked, but the files are not.

    Raises:
        FileNotFoundError: there is no checkpoint.
        CheckpointError: the manifest is damaged, or belongs to another directory.
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
    """Return all checkpoints of a run, sorted by step; at the same step, deltas come first.

    Raises:
        FileNotFoundError: `root` is not a directory.
        CheckpointError: a manifest is damaged.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"there is no directory of checkpoints at {root}")
    checkpoints = [entry_at(path) for path in root.iterdir() if parse_entry_name(path.name)]
    return sorted(checkpoints, key=lambda entry: (entry.step, entry.kind))


def newest_chain(root: Path, step: int | None = None) -> list[Entry]:
    """Return the shortest chain to the newest state: a full checkpoint and the deltas after it.

    Args:
        root: the directory of a run.
        step: step of the state. Default: None, which means the newest state.

    Returns:
        Checkpoints in the order in which they are applied; empty if there is no checkpoint.

    Raises:
        FileNotFoundError: `root` is not a directory.
        CheckpointError: a delta of the chain is missing or belongs to another run.
        ValueError: the run has no checkpoint of step `step`.
    """
    checkpoints = entries(root)
    if step is not None:
        if step not in {entry.step for entry in checkpoints}:
            steps = sorted({entry.step for entry in checkpoints})
            raise ValueError(f"{root} has no checkpoint of step {step}; it has {steps}")
        checkpoints = [entry for entry in checkpoints if entry.step <= step]
    if not checkpoints:
        return []
    fulls = [entry for entry in checkpoints if entry.kind == "full"]
    if not fulls:
        raise CheckpointError(f"{root} has deltas but no full checkpoint that they start from")
    chain = [fulls[-1]]
    for entry in checkpoints:
        if entry.kind == "delta" and entry.step > chain[0].step:
            check_follows(chain[-1], entry)
            chain.append(entry)
    return chain


def check_follows(before: Entry, entry: Entry) -> None:
    """Raise CheckpointError unless `entry` is a delta that starts from the state of `before`."""
    if entry.run != before.run:
        raise CheckpointError(
            f"{entry.path} is of run {entry.run}, {before.path} is of run {before.run}"
        )
    if entry.parent != before.state:
        raise CheckpointError(
            f"{entry.path} starts from state {entry.parent}, but {before.path} (step "
            f"{before.step}) leads to {before.state}: a delta is missing or out of order"
        )


def verify(entry: Entry, names: Container[str] | None = None) -> None:
    """Check size, checksum and contents of every file of a checkpoint against its manifest.

    The contents are checked too, because a checksum cannot detect contents that were wrong before
    the checksum was computed.

    Args:
        entry: the checkpoint.
        names: names of the files to check. Default: all files.

    Raises:
        CheckpointError: a file is missing or damaged. The error message names the file.
    """
    check_files(entry.path, entry.manifest, names)
    check_contents(entry.path, entry.manifest, names)


def verify_chain(
    chain: Sequence[Entry], names: Callable[[dict[str, Any]], Container[str]] | None = None
) -> None:
    """Verify every checkpoint of a chain; see `verify`.

    Args:
        chain: the checkpoints.
        names: function that takes a manifest and returns the names of the files to check. Default:
            None, which means all files.
    """
    for entry in chain:
        verify(entry, None if names is None else names(entry.manifest))


def chain_at(path: Path, step: int | None = None) -> list[Entry]:
    """Return the chain of a state: a full checkpoint, and the deltas that lead to the state.

    Args:
        path: a full checkpoint, or the directory of a run.
        step: step of the state, if `path` is the directory of a run. `step` is ignored if `path` is
            a full checkpoint. Default: None, which means the newest state.

    Raises:
        FileNotFoundError: there is no checkpoint.
        CheckpointError: a manifest is damaged, or `path` is a delta, which is not a complete state.
        ValueError: the run has no checkpoint of step `step`.
    """
    if not (path / MANIFEST).is_file() and path.is_dir():
        chain = newest_chain(path, step)
        if chain:
            return chain
    entry = entry_at(path)
    if entry.kind != "full":
        raise CheckpointError(f"{path} is a delta; give the directory of its run, {path.parent}")
    return [entry]
