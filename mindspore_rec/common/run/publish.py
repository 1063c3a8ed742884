# SPDX-License-Identifier: Apache-2.0
"""Make a copy of a run's checkpoints for predictors.

The copy is a directory like the run's directory, with the same states, deltas and network. Rows in
the copy have no optimizer state, and may be int8. Predictors can follow the copy instead of the
run. Training cannot resume from the copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mindspore_rec.common.run.chain import Entry, entry_at, parse_entry_name, verify
from mindspore_rec.common.run.contents import DENSE, legal_keys
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import (
    TEMPORARY,
    link_or_copy,
    new_directory,
    new_id,
    write_manifest,
)
from mindspore_rec.common.run.manifest_fields import state_files, workers_of
from mindspore_rec.common.run.network_file import DESCRIPTION, NETWORK, remove_network
from mindspore_rec.common.run.row_format import retyped
from mindspore_rec.common.run.share import parts_of
from mindspore_rec.common.run.table_file import described_type, read_rows, row_type, write_rows

__all__ = ["PUBLISHED", "Publisher"]

PUBLISHED = ("same", "int8")
"""Values of `rows`: 'same' copies the numbers as they are, 'int8' quantises them to 8 bits."""

_LOCK = "publisher.lock"
_NOT_TAKEN = ("format_version", "files", "crc32c", "tables")


class Publisher:
    """Publisher that makes a copy of a run and keeps the copy up to date.

    Args:
        run: the directory that `RecCheckpoint` writes.
        target: the directory of the copy, which is made if it is missing. `target` must be empty,
            or contain only a copy of this run that an earlier publisher made.
        rows: 'same' or 'int8'. Default: 'same'.

    Raises:
        ValueError: an argument is wrong, or `target` is a file or the run itself. ValueError is
            also raised if `target` has checkpoints that no publisher made, or a copy with a
            different value of `rows`.
        OSError: `target` cannot be made, or another publisher uses it.
    """

    def __init__(self, run: Path, target: Path, rows: str = "same") -> None:
        if rows not in PUBLISHED:
            raise ValueError(f"rows must be one of {', '.join(PUBLISHED)}, got {rows!r}")
        try:
            target.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(f"target must be a directory, {target} is, or is in, a file") from None
        if run.exists() and run.samefile(target):
            raise ValueError(f"target must be another directory than that of the run, {run}")
        self._run, self._target, self._rows = run, target, rows
        made = any(parse_entry_name(path.name) for path in target.iterdir())
        if made and not (target / _LOCK).exists():
            raise ValueError(f"target must have no checkpoints of others, {target} has some")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = open(os.open(target / _LOCK, flags, 0o644), "r+")  # held until `close`
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise OSError(f"another publisher is at work in {target}") from None
        before = self._lock.read(100).strip()
        if made and before != rows:
            self._lock.close()
            raise ValueError(f"rows must be {before!r}, as those in {target} are, got {rows!r}")
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(rows + "\n")
        self._lock.flush()
        for left in target.glob(f"{TEMPORARY}*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)

    def publish(self, published: Callable[[Path], object] = lambda path: None) -> list[Path]:
        """Copy new checkpoints of the run, remove deleted checkpoints, and return the copied paths.

        Args:
            published: function that is called with the path of each copy. Default: no function.

        The first call copies the newest full checkpoint and the checkpoints after it.

        Raises:
            CheckpointError: a checkpoint of the run is damaged. All undamaged checkpoints are
                copied before the error is raised.
            ValueError: the target directory is a copy of another run.
            FileNotFoundError: the run has no checkpoints any more, but the copy has checkpoints.
            OSError: a file cannot be read or written.
        """
        there = self._there()
        checkpoints, damage = self._wanted(there)
        if there and not checkpoints and damage is None:
            raise FileNotFoundError(f"{self._run} has no checkpoints any more: the copy is kept")
        runs = {entry.run for entry in checkpoints} | {entry.run for entry in there.values()}
        if len(runs) > 1:
            raise ValueError(f"{self._target} is a copy of another run than {self._run}")
        wanted = {entry.path.name: entry for entry in checkpoints}
        for name, entry in there.items():
            # A training that returned to an earlier step may write new checkpoints under the names
            # of old checkpoints.
            if name in wanted and wanted[name].state != entry.state:
                self._remove(entry.path)
        self._copy_network()
        made: list[Path] = []
        for entry in checkpoints:
            target = self._target / entry.path.name
            if target.exists():
                continue
            try:
                self._copy(entry, target)
            except (FileNotFoundError, CheckpointError) as error:
                if not entry.path.is_dir():
                    continue  # removed meanwhile
                if not isinstance(error, CheckpointError):
                    raise
                damage = damage or error
                continue
            made.append(target)
            published(target)
        for name, entry in there.items():
            if name not in wanted and not (self._run / name).is_dir():  # it may be damaged there
                self._remove(entry.path)
        if damage is not None:
            raise damage
        return made

    def follow(
        self,
        poll_seconds: float,
        published: Callable[[Path], object],
        failed: Callable[[Exception], object],
    ) -> NoReturn:
        """Publish repeatedly without end. If the run has no checkpoints, wait for checkpoints.

        Args:
            poll_seconds: seconds between two calls of `publish`.
            published: function that is called with the path of each copy.
            failed: function that is called with the error if `publish` fails, for example because
                of a damaged checkpoint or a full disk. A repeated error is not reported again.
                After a failure, the next call of `publish` tries again.
        """
        last_error = ""
        while True:
            try:
                self.publish(published)
                last_error = ""
            except FileNotFoundError:
                pass
            except (OSError, ValueError) as error:
                if str(error) != last_error:
                    failed(error)
                last_error = str(error)
            time.sleep(poll_seconds)

    def close(self) -> None:
        """Release the directory, so that other publishers can use it."""
        self._lock.close()

    # ---- inside

    def _remove(self, path: Path) -> None:
        """Remove a checkpoint, so that all its files disappear together."""
        hidden = self._target / f"{TEMPORARY}{path.name}.{new_id()}"
        os.rename(path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _there(self) -> dict[str, Entry]:
        checkpoints, damaged = _readable(self._target)
        for path in damaged:  # by the disk: the run may have it yet
            self._remove(path)
        return {entry.path.name: entry for entry in checkpoints}

    def _wanted(self, there: dict[str, Entry]) -> tuple[list[Entry], CheckpointError | None]:
        """Return the checkpoints to copy, and the error of a damaged run (None if undamaged)."""
        checkpoints, damaged = _readable(self._run)
        damage = next(iter(damaged.values()), None)
        if there:
            # Also copy the deltas before a full checkpoint, because predictors may need these
            # deltas to continue from an earlier state.
            first = min(entry.step for entry in there.values())
            left = [each for each in checkpoints if each.step > first or each.path.name in there]
            if any((self._run / name).is_dir() for name in there):
                return left, damage
        full = max((entry.step for entry in checkpoints if entry.kind == "full"), default=None)
        if full is None:
            if checkpoints and damage is None:
                damage = CheckpointError(f"{self._run} has deltas but no full checkpoint")
            return [], damage
        return [
            each
            for each in checkpoints
            if each.step > full or (each.step, each.kind) == (full, "full")
        ], damage

    def _copy(self, entry: Entry, target: Path) -> None:
        verify(entry)
        manifest = entry.manifest
        fields = {key: value for key, value in manifest.items() if key not in _NOT_TAKEN}
        with new_directory(target) as directory:
            tables = {
                name: self._copy_table(entry.path, directory, table)
                for name, table in manifest["tables"].items()
            }
            files = [DENSE]
            for worker in range(workers_of(manifest)):
                files += state_files(worker)
            for file in files:
                link_or_copy(entry.path / file, directory / file)
            write_manifest(directory, {**fields, "tables": tables})

    def _copy_table(self, source: Path, directory: Path, table: dict[str, Any]) -> dict[str, Any]:
        """Write the files of a table, and return the table's entry for the manifest."""
        before, legal = described_type(table), legal_keys(table)
        made = {**table, "state_width": 0}
        made.pop("state_dtype", None)
        if self._rows == "int8":
            made["value_dtype"] = "int8"
        after = row_type(table["dim"], 0, made.get("value_dtype", "float32"))
        parts = []
        for part in parts_of(table):
            rows = read_rows(source / part["file"], before, part["rows"], legal)
            changed = (retyped(each, after) for each in rows)
            write_rows(changed, after, directory / part["file"])
            if "deleted" in part:
                link_or_copy(source / part["deleted"], directory / part["deleted"])
            parts.append({**part, "counters": None})
        if self._rows == "int8":  # whose digests are of other bytes
            made.pop("digest", None)
            for part in parts:
                part.pop("digest", None)
        if "parts" in table:
            return {**made, "parts": parts}
        return {**made, "counters": None}

    def _copy_network(self) -> None:
        """Copy the network's files if these files have changed."""
        source, target = self._run / NETWORK, self._target / NETWORK
        try:
            text = (source / DESCRIPTION).read_bytes()
        except FileNotFoundError:
            return
        with suppress(FileNotFoundError):
            if (target / DESCRIPTION).read_bytes() == text:
                return
        beside = self._target / f"{TEMPORARY}{NETWORK}.{new_id()}"
        try:
            shutil.copytree(source, beside)
        except (FileNotFoundError, shutil.Error):  # replaced meanwhile: the next look copies it
            shutil.rmtree(beside, ignore_errors=True)
            return
        remove_network(self._target)
        os.rename(beside, target)


def _readable(root: Path) -> tuple[list[Entry], dict[Path, CheckpointError]]:
    """Return the checkpoints sorted by step (deltas first), and the errors of damaged manifests."""
    checkpoints: list[Entry] = []
    damaged: dict[Path, CheckpointError] = {}
    there = [*root.iterdir()] if root.is_dir() else []  # the run may not have begun
    for path in there:
        if parse_entry_name(path.name) is None:
            continue
        try:
            checkpoints.append(entry_at(path))
        except FileNotFoundError:
            pass  # removed meanwhile
        except NotADirectoryError:
            damaged[path] = CheckpointError(f"{path} is a file, not a checkpoint")
        except CheckpointError as error:
            damaged[path] = error
    return sorted(checkpoints, key=lambda entry: (entry.step, entry.kind)), damaged
