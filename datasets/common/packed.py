# SPDX-License-Identifier: Apache-2.0
"""Write batches as a packed data set: a directory of row blocks. The directory appears atomically.

A block has ``block_rows`` rows. In MindRecord, a block is one record, and each column is one array
``[rows, width]``. In Parquet, a block is one row group, and each column is a fixed-size list. One
row per record would limit a MindSpore pipeline to about 20,000 rows per second; packed blocks allow
millions of rows per second.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from datasets.common.blocks import Batch
from datasets.common.manifest import Manifest, digest_files
from datasets.common.packed_file import FORMATS, write_file

__all__ = ["FORMATS", "new_directory", "replace_directory", "write_packed"]


def write_packed(
    blocks: Iterable[Batch],
    output: str | os.PathLike[str],
    format: str = "mindrecord",
    block_rows: int = 4096,
    fields: Mapping[str, Sequence[str]] | None = None,
    source: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write batches to a directory that appears only when it is complete.

    Args:
        blocks: Batches with the same columns, of any sizes; only one block is in memory at a time.
        output: Directory to make, with its parents.
        format: ``mindrecord`` (default) or ``parquet``.
        block_rows: Rows per record or row group, at least 1 (default 4096).
        fields: Maps each column's name to the names of the column's values, for the manifest.
        source: JSON values that describe the origin of the rows, for the manifest. `source` is read
            after the last block, so a caller may fill `source` while making the blocks.
        overwrite: Replace ``output`` if it exists (default False).

    Returns:
        The manifest, as written to ``manifest.json``.

    Raises:
        ValueError: the format is unknown, ``block_rows`` is below 1, a column has a wrong dtype or
            shape, columns change between blocks, names do not fit a column's width, or there are no
            rows.
        FileExistsError: ``output`` exists and ``overwrite`` is False.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> block = {"ids": np.arange(6).reshape(3, 2), "label": np.ones((3, 1), np.float32)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = write_packed([block, block], folder + "/train", "parquet", block_rows=4)
        ...     sorted(os.listdir(folder + "/train"))
        ['data.parquet', 'manifest.json']
        >>> manifest.rows, manifest.blocks
        (6, 2)
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {FORMATS}, got {format!r}")
    with new_directory(output, overwrite) as directory:
        name = f"data.{format}"
        rows, columns = write_file(blocks, directory / name, format, block_rows, fields)
        if not rows:
            raise ValueError(f"blocks must have at least one row: nothing to write to {output}")
        files = digest_files(directory, name, rows)
        manifest = Manifest(format, rows, block_rows, columns, files, dict(source or {}))
        manifest.write(directory)
    return manifest


@contextmanager
def new_directory(output: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Yield a new directory, which is renamed to `output` if the `with` block raises no error.

    Args:
        output: Final path of the directory. Missing parents are made.
        overwrite: Replace an existing directory (default False).

    Yields: The directory to fill, on the file system of ``output``. The directory is removed if the
        `with` block raises an error.

    Raises:
        FileExistsError: ``output`` exists and ``overwrite`` is False.
        OSError: the parent directories of ``output`` cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with new_directory(parent + "/a") as beside:
        ...         _ = (beside / "x").write_text("1")
        ...         before = os.path.exists(parent + "/a")
        ...     before, os.listdir(parent)
        (False, ['a'])
    """
    place = Path(os.path.abspath(output))
    if place.exists() and not overwrite:
        raise FileExistsError(f"{place} exists: give another output or overwrite")
    beside = place.with_name(f".{place.name}.{os.getpid()}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        yield beside
        replace_directory(beside, place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def replace_directory(beside: Path, place: Path) -> None:
    """Sync a directory of files and rename it to its final path, replacing an existing directory.

    Args:
        beside: the complete directory. The directory must be on the same file system as the final
            path.
        place: final path of the directory.
    """
    for path in (*beside.iterdir(), beside):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    old = place.with_name(f".{place.name}.{os.getpid()}.old")
    if place.exists():
        place.rename(old)
    beside.rename(place)
    shutil.rmtree(old, ignore_errors=True)
