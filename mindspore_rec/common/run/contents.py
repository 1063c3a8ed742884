# SPDX-License-Identifier: Apache-2.0
"""Check a checkpoint's files against its manifest."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from mindspore_rec.common.run.array_file import check_arrays
from mindspore_rec.common.run.counter_file import check_counters
from mindspore_rec.common.run.manifest_fields import state_files, workers_of
from mindspore_rec.common.run.share import Share, parts_of
from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.common.run.table_file import (
    ALL_KEYS,
    check_rows,
    check_share,
    described_type,
    read_keys,
)

__all__ = ["DENSE", "check_contents", "files_of", "legal_keys"]

DENSE = "dense.safetensors"
_OF_A_PART = ("file", "deleted", "counters")
_INT32 = (-(1 << 31), (1 << 31) - 1)


def check_contents(
    directory: Path, manifest: dict[str, Any], names: Container[str] | None = None
) -> None:
    """Check the contents of files against the manifest, but not the values and states of rows.

    Args:
        directory: directory of the checkpoint. The files must have the sizes in the manifest.
        manifest: the manifest, from `read_manifest`.
        names: names of the files to check. Default: all files.

    Raises:
        CheckpointError: the contents of a file are wrong. The error message names the file.
    """
    wanted = manifest["files"] if names is None else names
    for table in manifest["tables"].values():
        parts = parts_of(table)
        for number, part in enumerate(parts):
            if part["file"] in wanted:
                _check_part(directory, table, part, Share(number, len(parts)))
    if DENSE in wanted:
        check_arrays(directory / DENSE)
    for worker in range(workers_of(manifest)):
        if state_files(worker)[0] in wanted:
            read_states(directory, worker)


def _check_part(directory: Path, table: dict[str, Any], part: dict[str, Any], share: Share) -> None:
    dtype, legal = described_type(table), legal_keys(table)
    check_rows(directory / part["file"], dtype, part["rows"], legal, share)
    if "deleted" in part:
        path = directory / part["deleted"]
        check_share(path, read_keys(path, part["deleted_rows"], legal), share)
    if part["counters"] is not None:
        check_counters(directory / part["counters"], table["admission"], share)


def files_of(manifest: dict[str, Any], shares: Mapping[str, Share | None]) -> set[str]:
    """Return the names of the files that a worker has to read: common files, and parts of tables.

    Args:
        manifest: manifest of a checkpoint.
        shares: for each table, the share of the keys that the worker needs; None if the worker
            needs no keys of the table.
    """
    parts_files = {
        part[kind]
        for table in manifest["tables"].values()
        for part in parts_of(table)
        for kind in _OF_A_PART
        if part.get(kind) is not None
    }
    names = set(manifest["files"]) - parts_files
    for name, share in shares.items():
        if share is None or name not in manifest["tables"]:
            continue
        parts = parts_of(manifest["tables"][name])
        for number in share.overlapping(len(parts)):
            names.update(parts[number][kind] for kind in _OF_A_PART if parts[number].get(kind))
    return names


def legal_keys(table: dict[str, Any]) -> tuple[int, int]:
    """Return a table's lowest and highest legal key, from the table's entry in a manifest."""
    if table["vocabulary"]:
        return 0, table["vocabulary"] - 1
    return _INT32 if table["key_dtype"] == "Int32" else ALL_KEYS
