# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a network by a call.

manifest.json       what is there, with checksums; see `mindspore_rec.checkpoint.manifest`
dense.safetensors   the dense parameters and the optimizer's
table_<n>.arrow     one a table
deleted_<n>.arrow   of a delta: keys that are gone
counters_<n>.*      counts of keys without a row: .arrow, or .sketch where admission is by sketch
states.*            what else a run has: its place in the stream, metrics, random generators
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn

from mindspore_rec.checkpoint.chain import Entry, entry_at, newest_chain, verify_chain
from mindspore_rec.checkpoint.errors import CheckpointError
from mindspore_rec.checkpoint.load import load_chain
from mindspore_rec.checkpoint.manifest import MANIFEST, new_directory, new_id, write_manifest
from mindspore_rec.checkpoint.snapshot import write_full
from mindspore_rec.checks import check_int
from mindspore_rec.nn.embedding import tables_of

__all__ = ["chain_at", "load_checkpoint", "save_checkpoint", "training_cell"]


def save_checkpoint(model: ms.train.Model | nn.Cell, path: str | os.PathLike[str]) -> None:
    """Saves tables with optimizer state, dense parameters and the optimizer's own.

    The directory is written beside its place, synced and renamed: after a crash there is either the
    whole checkpoint or none. Counts of keys that are not admitted yet are saved too.

    Args:
        model: a `RecModel` or other `Model`, or a Cell (a network for its weights only, a training
            cell for everything).
        path: directory to make; its parent must exist.

    Raises:
        FileExistsError: there is something at path already.
        OSError: a file cannot be written; there is no directory then.

    Example:
        >>> import tempfile
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> net = HashEmbeddingLookup(2, name="doc.save_checkpoint")
        >>> path = Path(tempfile.mkdtemp()) / "saved"
        >>> save_checkpoint(net, path)
        >>> for each in sorted(path.iterdir()):
        ...     print(each.name)
        dense.safetensors
        manifest.json
        states.json
        states.safetensors
        table_0.arrow
    """
    cell = training_cell(model)
    tables = {table.name: table for table in tables_of(cell)}
    steps = [table.native.step for table in tables.values()]
    with new_directory(Path(path)) as directory:
        fields = {
            "kind": "full",
            "step": max(steps, default=0),
            "run": new_id(),
            "state": new_id(),
            "parent": None,
            "saved_at": time.time(),
            "watermark": None,
            "model": None,
        }
        described = write_full(cell, tables, {}, directory)
        write_manifest(directory, {**fields, "tables": described})


def load_checkpoint(
    model: ms.train.Model | nn.Cell,
    path: str | os.PathLike[str],
    *,
    worker: int = 0,
    workers: int = 1,
) -> None:
    """Makes the network what it was when a checkpoint was written.

    Every file is checked before anything changes. Rows that a table has now are dropped. Optimizer
    state is loaded where an optimizer covers the table, which must then be of the kind that was
    saved.

    Args:
        model: as for `save_checkpoint`, built the same way, with tables of the same names.
        path: what `save_checkpoint` wrote; or the directory of a `RecCheckpoint`, of which the
            newest state is loaded.
        worker: with several processes that share the tables, which this is, from 0 on.
        workers: how many these are, whatever their number was at the time of writing. Each gets the
            rows of the keys it owns, all of them together every row once. Default: 1.

    Raises:
        FileNotFoundError: there is no checkpoint at path.
        CheckpointError: (a ValueError) a file is damaged, or the network's tables are not those of
            the checkpoint; the message names the file, and nothing has changed.
    """
    workers = check_int("workers", workers, 1, 1 << 16)
    worker = check_int("worker", worker, 0, workers - 1)
    chain = chain_at(Path(path))
    verify_chain(chain)
    load_chain(training_cell(model), chain, worker, workers)


def chain_at(path: Path, step: int | None = None) -> list[Entry]:
    """The chain that leads to a full checkpoint, or to a state of the run in a directory.

    Args:
        path: a checkpoint, or the directory of a run.
        step: of a run, the state of that step instead of the newest.

    Raises:
        FileNotFoundError: there is no checkpoint.
        CheckpointError: a manifest is damaged; `path` is a delta, which is nothing by itself.
    """
    if not (path / MANIFEST).is_file() and path.is_dir():
        chain = newest_chain(path, step)
        if chain:
            return chain
    entry = entry_at(path)
    if entry.kind != "full":
        raise CheckpointError(f"{path} is a delta; give the directory of its run, {path.parent}")
    return [entry]


def training_cell(model: Any) -> nn.Cell:
    """The cell with all parameters of a model, the optimizer's too where there is one.

    Raises:
        TypeError: it is neither a Model nor a Cell.
    """
    if isinstance(model, nn.Cell):
        return model
    if isinstance(model, ms.train.Model):
        cell = model.train_network
        return cell if cell is not None else model._network
    raise TypeError(f"model must be a Model or a Cell, got {type(model).__name__}")
