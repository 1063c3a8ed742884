# SPDX-License-Identifier: Apache-2.0
"""Directory and manifest of a checkpoint.

A directory appears completely or not at all: it is written under a temporary name, synced and
renamed. The manifest, `manifest.json`, contains the checkpoint's identity (`kind`, `step`, `run`,
`state`, `parent`), a description of its tables, and size and CRC32C of every other file. The field
`crc32c` is the checksum of the manifest's other lines.

A `full` checkpoint contains all rows. A `delta` contains the changes since its parent state. The id
`state` identifies the state that results when the checkpoint is loaded or applied. A training has
one id `run` and saves a sequence of states. The ids of runs and states are random and never used
twice.

Each read and write of a manifest checks every field (`manifest_fields`). The check also refuses
names of files outside the checkpoint's directory.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mindspore_rec import _native
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest_fields import (
    FORMAT_VERSION,
    PARTS_VERSION,
    check_fields,
)
from mindspore_rec.common.sync import sync

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST",
    "check_files",
    "describe_files",
    "link_or_copy",
    "new_directory",
    "new_id",
    "put_in_place",
    "read_manifest",
    "remove_beside",
    "sync_files",
    "write_manifest",
]

MANIFEST = "manifest.json"
TEMPORARY = ".tmp-"
_BLOCK = 1 << 22
_MOST_BYTES = 64 << 20  # of a manifest


def new_id() -> str:
    """Return a new random id of a run or a state, 16 hexadecimal digits.

    Example:
        >>> len(new_id())
        16
    """
    return uuid.uuid4().hex[:16]


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Yield a new directory, rename it to `target` at the end, and remove it after an error.

    Raises:
        FileExistsError: `target` exists already.
        OSError: a file cannot be written.

    Example:
        >>> root = Path(tempfile.mkdtemp())
        >>> with new_directory(root / "saved") as directory:
        ...     (directory / "rows").touch()
        >>> [path.name for path in (root / "saved").iterdir()]
        ['rows']
    """
    if target.exists():
        raise FileExistsError(f"path {target} exists already; a checkpoint is never overwritten")
    beside = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{target.name}.", dir=target.parent))
    try:
        yield beside
        sync_files(beside)
        os.chmod(beside, 0o755)
        sync(beside)
        put_in_place(beside, target)
    except BaseException:
        remove_beside(beside)
        raise


def remove_beside(directory: Path) -> None:
    """Remove a directory that has a temporary name, if the parent directory can be synced.

    If the parent directory cannot be synced, the directory is kept with all its files. A power loss
    may then undo the last rename, and the directory would reappear under the new name. The next
    writer removes the directory.
    """
    try:
        sync(directory.parent)
    except OSError:
        return
    shutil.rmtree(directory, ignore_errors=True)


def put_in_place(beside: Path, target: Path) -> None:
    """Rename a directory, and sync its parent, so that the new name survives a power loss.

    Raises:
        OSError: the new name could not be synced, and the directory was renamed back. If writing a
            checkpoint fails, the checkpoint must not appear later, because the next delta starts
            from the state of the previous checkpoint. If renaming back fails too, the directory
            keeps the new name, and the error of the second rename is raised.
    """
    os.rename(beside, target)
    try:
        sync(target.parent)
    except OSError:
        os.rename(target, beside)
        with suppress(OSError):
            sync(target.parent)
        raise


def describe_files(directory: Path) -> dict[str, Any]:
    """Return the manifest's entries for the files of a directory: each file's size and checksum."""
    return {
        path.name: {"size": path.stat().st_size, "crc32c": _checksum(path)}
        for path in sorted(directory.iterdir())
    }


def write_manifest(
    directory: Path, fields: dict[str, Any], files: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write a manifest with `fields` and the entries of the files, and return the whole manifest.

    Args:
        directory: directory that contains the checkpoint's files.
        fields: all fields of the manifest except `format_version`, `files` and `crc32c`.
        files: the result of `describe_files(directory)`. Default: None, which means that
            `write_manifest` calls `describe_files`.

    Raises:
        OSError: the manifest cannot be written.
        ValueError: a field has a value that `read_manifest` refuses.
    """
    files = describe_files(directory) if files is None else dict(sorted(files.items()))
    version = PARTS_VERSION if "workers" in fields else FORMAT_VERSION
    manifest = {"format_version": version, **fields, "files": files}
    check_fields(manifest)
    manifest["crc32c"] = _own_checksum(manifest)
    text = json.dumps(manifest, indent=2) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8")
    return manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a directory, after a check of the manifest's checksum and fields.

    Raises:
        FileNotFoundError: there is no checkpoint.
        CheckpointError: the manifest is damaged, or its format version is not supported.
    """
    path = directory / MANIFEST
    try:
        size = _size(path)
        if size > _MOST_BYTES:
            raise CheckpointError(
                f"{path} is damaged: it has {size} bytes of at most {_MOST_BYTES}"
            )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no checkpoint at {directory}: {path} is missing"
        ) from None
    except UnicodeDecodeError:
        raise CheckpointError(f"{path} is damaged: it is no text") from None
    return _parsed(path, text)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    """Parse the text of a manifest, and return the manifest after all checks."""
    try:
        manifest = json.loads(text)
        version = manifest["format_version"]
        checksum = manifest.pop("crc32c", None)
        own = _own_checksum(manifest)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    except RecursionError:
        raise CheckpointError(f"{path} is damaged: it is nested too deeply") from None
    if type(version) is not int or version not in (FORMAT_VERSION, PARTS_VERSION):
        raise CheckpointError(
            f"{path} has format version {version!r:.100}, legal: {FORMAT_VERSION}, {PARTS_VERSION}"
        )
    if type(checksum) is not int or checksum != own:
        raise CheckpointError(f"{path} is damaged: its contents are not those that were saved")
    try:
        check_fields(manifest)
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    return dict(manifest)


def check_files(
    directory: Path, manifest: dict[str, Any], names: Container[str] | None = None
) -> None:
    """Check size and CRC32C of every file.

    Args:
        directory: directory of the checkpoint.
        manifest: manifest of the checkpoint.
        names: names of the files to check. Default: all files.

    Raises:
        CheckpointError: a file is missing, is a link, or is damaged. The error message names the
            file.
    """
    for name, expected in manifest["files"].items():
        if names is not None and name not in names:
            continue
        path = directory / name
        try:
            size = _size(path)
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None
        if size != expected["size"]:
            raise CheckpointError(f"{path} is damaged: it has {size} bytes of {expected['size']}")
        if _checksum(path) != expected["crc32c"]:
            raise CheckpointError(f"{path} is damaged: its contents are not those that were saved")


def _size(path: Path) -> int:
    """Return the size of a file in bytes. Refuse a link, which may point out of the directory."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        what = "a link" if stat.S_ISLNK(status.st_mode) else "no file"
        raise CheckpointError(f"{path} is {what}; a checkpoint has files only")
    return status.st_size


def _own_checksum(manifest: dict[str, Any]) -> int:
    return _native.crc32c(json.dumps(manifest, sort_keys=True).encode())


def _checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            crc = _native.crc32c(block, crc)
    return crc


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy the file if a link fails. Files of a checkpoint never change."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def sync_files(directory: Path) -> None:
    """Sync all files below a directory to disk, and make the files readable to all users.

    Raises:
        OSError: a file cannot be written.
    """
    for path in directory.iterdir():
        if path.is_dir():
            sync_files(path)
            os.chmod(path, 0o755)
            sync(path)
            continue
        os.chmod(path, 0o644)
        sync(path)
