# SPDX-License-Identifier: Apache-2.0
"""Find the checkpoints of a run, and the chain of checkpoints from a state to the newest state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mindspore_rec.common.run.chain import Entry, entry_at, parse_entry_name
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import MANIFEST

__all__ = ["Catalog", "ChainError"]


class ChainError(CheckpointError):
    """Error for a checkpoint that cannot be applied; the message names the file and says why.

    Attributes:
        path: directory of the checkpoint.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.path = path


class _Known(NamedTuple):
    """A checkpoint whose manifest was read.

    Attributes:
        identity: numbers that identify the checkpoint's directory, taken when the manifest was
            read.
        fingerprint: value that changes if the checkpoint's files change. The value was computed
            before the manifest was read.
        entry: the checkpoint.
    """

    identity: tuple[int, ...]
    fingerprint: Any
    entry: Entry


class Catalog:
    """Checkpoints of a run; a manifest is read again only if the checkpoint's directory changed.

    A run may have thousands of deltas, and a follower reads the directory ten times per second. To
    save time, each read of the directory makes only one stat call per known checkpoint.

    Args:
        root: the directory of a run, or a single full checkpoint. The directory need not exist yet.

    Attributes:
        good: the checkpoints with valid manifests that were not rejected, sorted by step.
        names: for each directory name, the step and the kind of the checkpoint; includes bad
            checkpoints.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.good: list[Entry] = []
        self.names: dict[str, tuple[int, str]] = {}
        self._known: dict[str, _Known] = {}
        self._bad: dict[str, tuple[Any, ChainError]] = {}  # with the fingerprint before the read

    def refresh(self) -> None:
        """Read the directory again.

        Raises:
            OSError: the directory cannot be read.
        """
        if (self.root / MANIFEST).is_file():
            self._refresh_single()
            return
        names: dict[str, tuple[int, str]] = {}
        known: dict[str, _Known] = {}
        try:
            dir_entries = list(os.scandir(self.root))
        except FileNotFoundError:
            dir_entries = []
        for each in dir_entries:
            parsed = parse_entry_name(each.name)
            if parsed is None:
                continue
            names[each.name] = parsed
            if each.name in self._bad:
                if self._bad[each.name][0] == _fingerprint(each.path):
                    continue
                del self._bad[each.name]
            fingerprint = None
            try:
                # The inode alone does not identify a directory. A training that went back to an
                # earlier step may have removed and rewritten the directory, and the new directory
                # often has the same inode.
                identity = _identity(each.stat())
                before = self._known.get(each.name)
                if before is None or before.identity != identity:
                    # Take the fingerprint before the manifest is read. If reading fails and the
                    # files are repaired at the same time, the next refresh finds a different
                    # fingerprint.
                    fingerprint = _fingerprint(each.path)
                    before = _Known(identity, fingerprint, entry_at(self.root / each.name))
                known[each.name] = before
            except FileNotFoundError:
                path = self.root / each.name
                if not path.is_dir():
                    del names[each.name]  # removed meanwhile
                    continue
                self._pass_over(ChainError(path, f"{path} has no manifest"), fingerprint)
            except NotADirectoryError:
                path = self.root / each.name
                reason = f"{path} is a file, not a checkpoint"
                self._pass_over(ChainError(path, reason), fingerprint)
            except ValueError as error:
                self._pass_over(ChainError(self.root / each.name, str(error)), fingerprint)
        self.names, self._known = names, known
        self._bad = {name: bad for name, bad in self._bad.items() if name in names}
        entries = (each.entry for each in known.values())
        self.good = sorted(entries, key=lambda entry: (entry.step, entry.kind))

    def _refresh_single(self) -> None:
        """Read a directory that is itself a checkpoint, written by `save_checkpoint`."""
        if self.good:
            return
        self.names = {self.root.name: (0, "full")}
        fingerprint = _fingerprint(self.root)
        try:
            entry = entry_at(self.root)
        except ValueError as error:
            self._pass_over(ChainError(self.root, str(error)), fingerprint)
            return
        if entry.kind == "full":
            self.good = [entry]
        else:
            reason = f"{self.root} is a delta; give the directory of its run"
            self._pass_over(ChainError(self.root, reason), fingerprint)

    def reject(self, error: ChainError) -> None:
        """Ignore a checkpoint until one of its files changes.

        If the files of a valid checkpoint are replaced after its manifest was read, loading
        combines the old manifest with new files, and may fail. If the files have changed, the
        checkpoint is not ignored, and the next refresh reads the new manifest.
        """
        known = self._known.pop(error.path.name, None)
        fingerprint = _fingerprint(error.path)
        if known is None or known.fingerprint == fingerprint:
            self._pass_over(error, fingerprint)
        self.good = [entry for entry in self.good if entry.path != error.path]

    def forget_changed(self, entries: Sequence[Entry]) -> bool:
        """Return True if a checkpoint's files have changed since its manifest was read.

        The next refresh reads the manifests of the changed checkpoints again.
        """
        changed = [
            entry.path.name
            for entry in entries
            if entry.path.name in self._known
            and self._known[entry.path.name].fingerprint != _fingerprint(entry.path)
        ]
        for name in changed:
            del self._known[name]
        return bool(changed)

    def lost(self, entries: Sequence[Entry]) -> bool:
        """Read the directory again; return True if a checkpoint's files were removed or changed."""
        is_changed = self.forget_changed(entries)
        self.refresh()
        return is_changed or any(entry not in self.good for entry in entries)

    def _pass_over(self, error: ChainError, fingerprint: Any) -> None:
        self._bad[error.path.name] = (fingerprint, error)

    def absence(self) -> str | None:
        """Return a message that says why there is no checkpoint; None if there are checkpoints."""
        if self.names:
            return None
        if not self.root.exists():
            return f"{self.root} is not there any more"
        return f"there is no checkpoint in {self.root} any more"

    def errors(self, after: int) -> list[ChainError]:
        """Return the errors of ignored checkpoints whose step is above `after`, sorted by step."""
        by_step = [
            (self.names[name][0], error)
            for name, (_, error) in self._bad.items()
            if name in self.names and self.names[name][0] > after
        ]
        return [error for _, error in sorted(by_step, key=lambda pair: pair[0])]

    def lag(self, step: int) -> int:
        """Return the number of deltas that are newer than a step."""
        return sum(kind == "delta" and at > step for at, kind in self.names.values())

    def first_chain(self) -> list[Entry]:
        """Return the full checkpoint and the deltas that lead to the newest reachable state; [] if
        no state is reachable.
        """
        return self._chain_to(self.good) or []

    def next_chain(self, applied: Entry) -> list[Entry]:
        """Return the next checkpoints to apply: one delta, or a full checkpoint and deltas, or [].

        A full checkpoint, together with the deltas that follow it, replaces the whole state. If a
        restart of the training has changed a table's precision, all rows were rounded, and the
        whole state is replaced.

        A training that goes back to an earlier step removes all newer checkpoints. If the applied
        checkpoint was removed and there is no newer checkpoint, return the chain of the newest
        remaining checkpoint.

        Raises:
            ChainError: each newer checkpoint needs a checkpoint that is missing; or the directory
                has checkpoints of another run than `applied`, and no newer checkpoint of the run of
                `applied`.
        """
        own = [entry for entry in self.good if entry.run == applied.run]
        for entry in own:
            if entry.kind == "delta" and entry.parent == applied.state:
                parent = next((each for each in own if each.state == applied.state), applied)
                same = _precisions(parent) in (None, _precisions(entry))
                return [entry] if same else self._chain_to([entry]) or [entry]
        newer = [entry for entry in own if entry.step > applied.step]
        if newer:
            chain = self._chain_to(newer)
            if chain is None:
                first = newer[0]
                raise ChainError(
                    first.path,
                    f"{first.path} starts from state {first.parent}, but this predictor is at "
                    f"state {applied.state} (step {applied.step}): a delta is missing",
                )
            return chain
        there = any(entry.state == applied.state for entry in own) or applied.path.name in self._bad
        if own and not there:
            return self._chain_to(own) or []
        strangers = [entry for entry in self.good if entry.run != applied.run]
        if strangers:
            last = strangers[-1]
            raise ChainError(
                last.path,
                f"{last.path} is of run {last.run}, this predictor follows run {applied.run}",
            )
        return []

    def _chain_to(self, targets: Sequence[Entry]) -> list[Entry] | None:
        fulls = {entry.state: entry for entry in self.good if entry.kind == "full"}
        deltas = {entry.state: entry for entry in self.good if entry.kind == "delta"}
        for target in reversed(targets):
            chain: list[Entry] = []
            state: str | None = target.state
            while state is not None:
                if state in fulls:
                    return [fulls[state], *reversed(chain)]
                if state not in deltas or len(chain) > len(deltas):
                    break
                chain.append(deltas[state])
                state = deltas[state].parent
        return None


def _precisions(entry: Entry) -> dict[str, Any] | None:
    """Return the dtype of each table; None for an entry from shared memory, without tables."""
    tables = entry.manifest.get("tables")
    if tables is None:
        return None
    return {name: each.get("value_dtype") for name, each in tables.items()}


def _fingerprint(path: str | Path) -> Any:
    """Return a value that changes when a file in a directory changes; None for no directory."""
    try:
        stats = [(each.name, each.stat()) for each in os.scandir(path)]
    except OSError:
        return None
    return sorted((name, _identity(at)) for name, at in stats)


def _identity(at: os.stat_result) -> tuple[int, ...]:
    """Return numbers that identify a file or directory, even if an inode number is used again."""
    return at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
