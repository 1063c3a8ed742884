# SPDX-License-Identifier: Apache-2.0
"""Check of a checkpoint's files against its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindspore_rec.checkpoint.array_file import check_arrays
from mindspore_rec.checkpoint.counter_file import check_counters
from mindspore_rec.checkpoint.state_file import read_states
from mindspore_rec.checkpoint.table_file import ALL_KEYS, check_rows, read_keys, row_type

__all__ = ["DENSE", "check_contents", "legal_keys"]

DENSE = "dense.safetensors"
_INT32 = (-(1 << 31), (1 << 31) - 1)


def check_contents(directory: Path, manifest: dict[str, Any]) -> None:
    """Check that the files hold what the manifest says, except for values and states of rows.

    Args:
        directory: directory of the checkpoint, with files of the right sizes.
        manifest: the manifest, from `read_manifest`.

    Raises:
        CheckpointError: the contents of a file are wrong; the message names it.
    """
    for table in manifest["tables"].values():
        dtype, legal = row_type(table["dim"], table["state_width"]), legal_keys(table)
        check_rows(directory / table["file"], dtype, table["rows"], legal)
        if "deleted" in table:
            read_keys(directory / table["deleted"], table["deleted_rows"], legal)
        if table["counters"] is not None:
            check_counters(directory / table["counters"], table["admission"])
    check_arrays(directory / DENSE)
    read_states(directory)


def legal_keys(table: dict[str, Any]) -> tuple[int, int]:
    """Return the lowest and the highest legal key of a table, from its entry in a manifest."""
    if table["vocabulary"]:
        return 0, table["vocabulary"] - 1
    return _INT32 if table["key_dtype"] == "Int32" else ALL_KEYS
