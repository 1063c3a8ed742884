# SPDX-License-Identifier: Apache-2.0
"""Files of a checkpoint: manifest, rows, keys, counters, states. They raise CheckpointError."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from mindspore_rec.common.run.array_file import check_arrays
from mindspore_rec.common.run.contents import check_contents, files_of
from mindspore_rec.common.run.counter_file import check_counters, read_counters
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import MANIFEST, _own_checksum, read_manifest
from mindspore_rec.common.run.manifest_fields import check_fields
from mindspore_rec.common.run.share import Share
from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.common.run.table_file import (
    check_rows,
    read_columns,
    read_keys,
    read_rows,
    row_type,
    to_arrays,
)
from tests.fuzz.harness import Target, scratch

__all__ = ["TARGETS"]

_DIRECTORY = scratch()


def manifest(data: bytes) -> None:
    """With a checksum that is right, where it is an object."""
    try:
        value = json.loads(data)
        if isinstance(value, dict):
            value.pop("crc32c", None)
            value["crc32c"] = _own_checksum(value)
            data = json.dumps(value).encode()
    except (ValueError, RecursionError):
        pass
    (_DIRECTORY / MANIFEST).write_bytes(data)
    try:
        found = read_manifest(_DIRECTORY)
    except CheckpointError:
        return
    check_fields(found)
    # Nothing is read or written outside the directory.
    assert all(name == os.path.basename(name) for name in found["files"])
    assert MANIFEST not in found["files"] and not {"", ".", ".."} & set(found["files"])
    shares: dict[str, Any] = {name: Share(0, 2) for name in found["tables"]}
    assert set(files_of(found, shares)) <= set(found["files"])
    try:
        check_contents(_DIRECTORY, found)
    except (CheckpointError, FileNotFoundError):  # its files are not there
        pass


_TYPES = [
    row_type(3, 2),
    row_type(3, 0),
    row_type(5, 10, "bfloat16", "bfloat16"),
    row_type(4, 8, "float16"),
    row_type(4, 0, "int8"),
]


def rows(data: bytes) -> None:
    """The first byte says how many rows are expected, the second their type."""
    count, dtype = (data[0] if data else 0), _TYPES[(data[1] if data[1:] else 0) % len(_TYPES)]
    path = _DIRECTORY / "table_0.arrow"
    path.write_bytes(data[2:])
    legal = (-(1 << 62), 1 << 62) if count % 2 else (0, 9)
    try:
        check_rows(path, dtype, count, legal)
        parts = list(read_rows(path, dtype, count, legal, most=7))
    except CheckpointError:
        return
    found = np.concatenate([np.empty(0, dtype), *parts])
    assert len(found) == count and (np.diff(found["key"]) > 0).all()
    for part in parts:
        to_arrays(part)
    if dtype["value"].base.str != "|u1":
        columns = list(read_columns(path, dtype, count, legal))
        assert sum(len(each["keys"]) for each in columns) == count


def keys(data: bytes) -> None:
    path = _DIRECTORY / "deleted_0.arrow"
    path.write_bytes(data[1:])
    count = data[0] if data else 0
    try:
        found = read_keys(path, count)
    except CheckpointError:
        return
    assert len(found) == count and (np.diff(found) > 0).all()


class _Counting:
    """A table that takes counters and gives them no place."""

    def import_counters(self, **columns: np.ndarray) -> None:
        assert len({len(values) for values in columns.values()}) == 1


def counters(data: bytes) -> None:
    path = _DIRECTORY / "counters_0.arrow"
    path.write_bytes(data)
    try:
        check_counters(path, "count", Share(0, 2))
        read_counters(_Counting(), [path, path], Share(0, 2))
        read_counters(_Counting(), [path], Share(1, 4))
    except CheckpointError:
        pass


def states(data: bytes) -> None:
    """Two bytes say how long the JSON is; what follows it is the safetensors file."""
    size = int.from_bytes(data[:2], "little")
    (_DIRECTORY / "states.json").write_bytes(data[2 : 2 + size])
    path = _DIRECTORY / "states.safetensors"
    path.write_bytes(data[2 + size :])
    try:
        check_arrays(path)
    except CheckpointError:
        pass
    try:
        assert isinstance(read_states(_DIRECTORY), dict)
    except CheckpointError:
        pass


_NAMES = [b'"tables"', b'"parts"', b'"workers": 2,', b"table_0_1.arrow", b'"format_version": 4']
TARGETS = [
    Target("manifest", manifest, _NAMES),
    Target("rows", rows),
    Target("keys", keys),
    Target("counters", counters),
    Target("states", states, [b'{"__array__": "states.a"}', b'"F32"', b'"data_offsets"']),
]
