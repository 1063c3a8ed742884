# SPDX-License-Identifier: Apache-2.0
"""Merge of a full checkpoint and the deltas after it into a new one, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mindspore_rec.checkpoint.chain import Entry, verify_chain
from mindspore_rec.checkpoint.manifest import new_directory, write_manifest
from mindspore_rec.checkpoint.rows import dtype_of, rows_at
from mindspore_rec.checkpoint.table_file import write_rows

__all__ = ["merge_chain"]

_OF_A_DELTA = ("deleted", "deleted_rows")
_FILES_OF_ROWS = ("file", "deleted")
_NOT_TAKEN = ("format_version", "files", "crc32c")


def merge_chain(chain: Sequence[Entry], target: Path) -> None:
    """Write the state that a chain leads to as a full checkpoint.

    Its table files are byte for byte those that saving the network itself would write.

    Args:
        chain: checkpoints from `newest_chain`; every file is checked.
        target: the directory to make; its parent must exist.

    Raises:
        FileExistsError: `target` exists already.
        CheckpointError: a file of the chain is damaged.
        OSError: a file cannot be written; `target` is not made.
    """
    verify_chain(chain)
    last = chain[-1]
    with new_directory(target) as directory:
        tables = {}
        for name, saved in last.manifest["tables"].items():
            table = {key: value for key, value in saved.items() if key not in _OF_A_DELTA}
            parts = rows_at(chain, name)
            table["rows"] = write_rows(parts, dtype_of(last, name), directory / table["file"])
            tables[name] = table
        of_rows = {
            saved.get(key) for saved in last.manifest["tables"].values() for key in _FILES_OF_ROWS
        }
        for file in last.manifest["files"].keys() - of_rows:
            _link(last.path / file, directory / file)
        fields = {key: value for key, value in last.manifest.items() if key not in _NOT_TAKEN}
        write_manifest(directory, {**fields, "kind": "full", "parent": None, "tables": tables})


def _link(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it: files of a checkpoint are never changed."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
