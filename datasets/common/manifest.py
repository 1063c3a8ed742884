# SPDX-License-Identifier: Apache-2.0
"""The manifest of a packed data set: the columns, the files, and the files' digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["MANIFEST_NAME", "Column", "DataFile", "Manifest", "digest_files", "sha256_of"]

MANIFEST_NAME = "manifest.json"
_VERSION = 1


@dataclass(frozen=True)
class Column:
    """One column of a packed data set.

    Args:
        name: ``ids``, ``dense``, ``label`` or ``bayes``.
        dtype: NumPy name of the element type.
        width: Number of values per row.
        fields: Names of the ``width`` values, or empty if they have no names.
    """

    name: str
    dtype: str
    width: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataFile:
    """One file of a packed data set.

    Args:
        name: file name in the directory of the data set.
        bytes: size in bytes.
        sha256: digest in hexadecimal.
        rows: number of rows in the file. An auxiliary file, such as MindRecord's index, has 0 rows.
    """

    name: str
    bytes: int
    sha256: str
    rows: int = 0


@dataclass(frozen=True)
class Manifest:
    """Description of a packed data set.

    Args:
        format: ``mindrecord``, ``parquet``, or ``tsv`` for text that is not converted yet.
        rows: Number of rows.
        block_rows: Rows per block (a record or row group). Only the last block of a data file may
            have fewer rows.
        columns: The columns.
        files: The data files in the order of the rows. Each data file is followed by its auxiliary
            files.
        source: Origin of the rows; any JSON values.
    """

    format: str
    rows: int
    block_rows: int
    columns: tuple[Column, ...]
    files: tuple[DataFile, ...]
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Number of blocks in all data files."""
        return len(self.block_sizes)

    @property
    def block_sizes(self) -> list[int]:
        """Number of rows of each block."""
        size = self.block_rows
        return [min(size, n - at) for _, n in self.data_files for at in range(0, n, size)]

    @property
    def data_files(self) -> tuple[tuple[str, int], ...]:
        """Names and row counts of the data files."""
        files = tuple((file.name, file.rows) for file in self.files if file.rows)
        # older manifests of a single data file may lack the number of rows of the file
        return files or ((self.files[0].name, self.rows),)

    def write(self, directory: Path) -> None:
        """Write ``manifest.json`` into ``directory``."""
        text = json.dumps({"version": _VERSION, **asdict(self)}, indent=2)
        (directory / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def read(directory: Path) -> Manifest:
        """Read the manifest of ``directory``.

        Raises:
            ValueError: the manifest is missing or has an unknown version; a file is missing; or a
                file's size differs from the size in the manifest.
        """
        path = directory / MANIFEST_NAME
        if not path.is_file():
            raise ValueError(f"{directory} is not a packed data set: it has no {MANIFEST_NAME}")
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.pop("version", None) != _VERSION:
            raise ValueError(f"{path} must have version {_VERSION}")
        raw["columns"] = tuple(
            Column(**{**c, "fields": tuple(c["fields"])}) for c in raw["columns"]
        )
        raw["files"] = tuple(DataFile(**f) for f in raw["files"])
        manifest = Manifest(**raw)
        manifest._check_sizes(directory)
        return manifest

    def verify(self, directory: Path) -> None:
        """Read all files, and compare the SHA-256 digest of each file with the manifest.

        Raises:
            ValueError: a file differs from the manifest; the message names the file.
        """
        self._check_sizes(directory)
        for file in self.files:
            if sha256_of(directory / file.name) != file.sha256:
                raise ValueError(f"{directory / file.name} does not have its manifest's SHA-256")

    def _check_sizes(self, directory: Path) -> None:
        for file in self.files:
            path = directory / file.name
            size = path.stat().st_size if path.is_file() else None
            if size != file.bytes:
                raise ValueError(f"{path} must have {file.bytes} bytes, found {size}")


def digest_files(directory: Path, data: str = "", rows: int = 0) -> tuple[DataFile, ...]:
    """Read all files of ``directory``, and return the size and digest of each file by name.

    Args:
        directory: directory with the data file.
        data: name of the data file in the directory.
        rows: number of rows in the data file.
    """
    return tuple(
        DataFile(path.name, path.stat().st_size, sha256_of(path), rows if path.name == data else 0)
        for path in sorted(directory.iterdir())
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
