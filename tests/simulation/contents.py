# SPDX-License-Identifier: Apache-2.0
"""Contents of a checkpoint's files, parsed once by the library's own readers.

A file is read up to ten times in a schedule: by the merger, each life of the trainer, each of the
predictor. Its bytes decide what a reader returns, so the same bytes are not parsed again; bytes
that a power loss or an error has changed are. The operations on files, which can fail and at which
threads change, are those of the reader each time.
"""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import safe_open

from mindspore_rec.common.run.arrow_file import _batches as read_mapped
from mindspore_rec.common.run.manifest import _parsed as parse_manifest

__all__ = ["Mapped", "arrays_of", "batches_of", "parsed"]

_KEPT = 256
_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
_numbers = itertools.count()


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


class _Arrays:
    """Stands for what `safe_open` returns."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, *error: object) -> None:
        pass


@lru_cache(_KEPT)
def arrays_of(data: bytes) -> _Arrays:
    """Return what `safe_open` returns of a file with these bytes; it maps a real one."""
    path = f"{_MEMORY}/simulation-{os.getpid()}-{next(_numbers)}"
    with open(path, "xb") as file:
        file.write(data)
    try:
        return _Arrays(safe_open(path, "np").__enter__())
    finally:
        os.unlink(path)


class Mapped:
    """Stands for a mapped file of Arrow."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __enter__(self) -> Mapped:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def batches_of(
    source: Mapped, path: Path, schema: pa.Schema, rows: int | None
) -> Sequence[pa.RecordBatch]:
    """Stand for the function of `arrow_file.py` that checks and reads a mapped file."""
    try:
        return _checked(source.data, schema, rows)
    except Exception:
        reader = pa.BufferReader(pa.py_buffer(source.data))
        return list(read_mapped(reader, path, schema, rows))  # whose error has the path


@lru_cache(_KEPT)
def _checked(data: bytes, schema: pa.Schema, rows: int | None) -> Sequence[pa.RecordBatch]:
    return list(read_mapped(pa.BufferReader(pa.py_buffer(data)), Path("."), schema, rows))
