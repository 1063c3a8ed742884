# SPDX-License-Identifier: Apache-2.0
"""Merge the files of a full checkpoint and of the deltas after it into a new checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindspore_rec.common.digests.digest import DigestSum
from mindspore_rec.common.run.chain import Entry, verify_chain
from mindspore_rec.common.run.contents import DENSE, files_of
from mindspore_rec.common.run.digests import digest_numbers, digested
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import link_or_copy, new_directory, write_manifest
from mindspore_rec.common.run.manifest_fields import state_files, workers_of
from mindspore_rec.common.run.network_file import copy_network
from mindspore_rec.common.run.rows import dtype_of, rows_at
from mindspore_rec.common.run.share import ALL, Share, parts_of
from mindspore_rec.common.run.table_file import write_rows
from mindspore_rec.common.run.team import ALONE, Team
from mindspore_rec.common.run.write import joined_tables, summary, write_checkpoint

__all__ = ["merge_chain"]

_OF_A_DELTA = ("deleted", "deleted_rows")
_NOT_TAKEN = ("format_version", "workers", "files", "crc32c", "tables")

Described = dict[str, Any]


def merge_chain(
    chain: Sequence[Entry], target: Path, team: Team = ALONE, network_of: Path | None = None
) -> dict[str, Any]:
    """Write the state of a chain as a full checkpoint.

    Each table has the same number of parts as in the last checkpoint. The table files are equal,
    byte for byte, to the files that `RecCheckpoint` would write for the same state.

    Args:
        chain: checkpoints from `newest_chain`. All files of the chain are checked.
        target: the directory to make, whose parent must exist.
        team: the workers that share the merge. Each worker merges its own parts. The number of
            workers must equal the number of workers that wrote the last checkpoint. Default: one
            worker, which merges all parts.
        network_of: directory of the run whose network is copied into the new checkpoint, so that a
            predictor can serve the new checkpoint. Default: None, which means that no network is
            copied.

    Returns:
        As `write_checkpoint`.

    Raises:
        FileExistsError: `target` exists already.
        CheckpointError: a file of the chain is damaged, or the digest of merged rows differs from
            the table's digest in the trainer.
        ValueError: the team has several workers, but another number of workers wrote the last
            checkpoint.
        OSError: a file cannot be written. In case of an error, `target` is not made.
    """
    last = chain[-1]
    fields = {key: value for key, value in last.manifest.items() if key not in _NOT_TAKEN}
    fields.update(kind="full", parent=None)
    parts = workers_of(last.manifest)

    def add_network(directory: Path) -> None:
        if network_of is not None:
            copy_network(network_of, directory)

    if parts == team.workers:
        return write_checkpoint(
            target,
            lambda: fields,
            lambda path: _merge_part(chain, path, team.worker),
            team,
            add_network,
        )
    if team.workers != 1:
        raise ValueError(f"team must be of {parts} workers, which wrote {last.path}")
    with new_directory(target) as directory:
        merged = [_merge_part(chain, directory, worker) for worker in range(parts)]
        fields.update(workers=parts, tables=joined_tables(merged))
        manifest = write_manifest(directory, fields)
        add_network(directory)
        return summary(manifest)


def _merge_part(chain: Sequence[Entry], directory: Path, worker: int) -> Described:
    """Write the files of one worker, and return the manifest's entries for the tables."""
    last = chain[-1]
    workers = workers_of(last.manifest)
    mine: dict[str, tuple[Share, Described]] = {}
    for number, (name, saved) in enumerate(last.manifest["tables"].items()):
        parts = parts_of(saved)
        if len(parts) == workers:
            mine[name] = Share(worker, workers), parts[worker]
        elif number % workers == worker:
            mine[name] = ALL, parts[0]
    verify_chain(
        chain, lambda each: files_of(each, {name: share for name, (share, _) in mine.items()})
    )
    linked = set(state_files(worker)) | ({DENSE} if worker == 0 else set())
    merged = {}
    for name, (share, part) in mine.items():
        table = {**last.manifest["tables"][name], **part}
        for key in ("parts", *_OF_A_DELTA):
            table.pop(key, None)
        path = directory / part["file"]
        kept, digest = table.pop("digest", None), DigestSum(digest_numbers(table))
        rows = digested(rows_at(chain, name, share), digest, digest_numbers(table))
        table["rows"] = write_rows(rows, dtype_of(last, name), path)
        table["digest"] = digest.total.digest
        if kept not in (None, table["digest"]):
            raise CheckpointError(
                f"{last.path}: table '{name}' had digest {kept} in the trainer, but its rows in "
                f"the files from {chain[0].path.name} to {last.path.name} have {table['digest']}"
            )
        merged[name] = table
        linked.update({part["counters"]} - {None})
    for file in sorted(linked):
        link_or_copy(last.path / file, directory / file)
    return merged
