# SPDX-License-Identifier: Apache-2.0
"""Contents of a checkpoint's files, parsed once by the library's own readers.

A file is read up to ten times in a schedule: by the merger, each life of the trainer, each of the
predictor. Its bytes decide what a reader returns, so the same bytes are not parsed again; bytes
that a power loss or an error has changed are. The operations on files, which can fail and at which
threads change, are those of the reader each time.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from mindspore_rec.common.run.arrow_file import _batches as read_opened
from mindspore_rec.common.run.manifest import _parsed as parse_manifest

__all__ = ["ArrowFile", "batches_of", "parsed"]

_KEPT = 256


def parsed(path: Path, text: str) -> dict[str, Any]:
    """Stand for the function of `manifest.py` that parses and checks a manifest's text."""
    try:
        found: dict[str, Any] = pickle.loads(_pickled(text))
    except ValueError:
        return parse_manifest(path, text)  # whose error has the path
    return found


@lru_cache(_KEPT)
def _pickled(text: str) -> bytes:
    return pickle.dumps(parse_manifest(Path("."), text))


class ArrowFile:
    """Stands for a file that `pyarrow.OSFile` has opened to be read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __enter__(self) -> ArrowFile:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def batches_of(
    source: ArrowFile,
    path: Path,
    schema: pa.Schema,
    rows: int | None,
    columns: Sequence[str] | None,
) -> Sequence[pa.RecordBatch]:
    """Stand for the function of `arrow_file.py` that checks and reads an open file."""
    names = None if columns is None else tuple(columns)
    try:
        return _checked(source.data, schema, rows, names)
    except Exception:
        return _read(source.data, path, schema, rows, names)  # whose error has the path


@lru_cache(_KEPT)
def _checked(
    data: bytes, schema: pa.Schema, rows: int | None, columns: tuple[str, ...] | None
) -> Sequence[pa.RecordBatch]:
    return _read(data, Path("."), schema, rows, columns)


def _read(
    data: bytes,
    path: Path,
    schema: pa.Schema,
    rows: int | None,
    columns: tuple[str, ...] | None,
) -> Sequence[pa.RecordBatch]:
    return list(read_opened(pa.BufferReader(pa.py_buffer(data)), path, schema, rows, columns))
