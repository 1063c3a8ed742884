# SPDX-License-Identifier: Apache-2.0
"""Functions that save and load a network.

manifest.json       description and checksums; see `mindspore_rec.common.run.manifest`
dense.safetensors   dense parameters and the optimizer's parameters
table_<n>.arrow     rows of a table
deleted_<n>.arrow   keys that a delta deletes
counters_<n>.*      counts of keys without a row; .sketch for admission by sketch, otherwise .arrow
states.*            other states of a run: position in the stream, metrics, random generators

With several workers, each worker writes its own keys to table_<n>_<worker>.arrow,
deleted_<n>_<worker>.arrow and counters_<n>_<worker>.*. Each worker except worker 0 writes its
states to states_<worker>.*.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.run.chain import Entry, chain_at, verify_chain
from mindspore_rec.common.run.contents import files_of
from mindspore_rec.common.run.load_tables import TableShares
from mindspore_rec.common.run.manifest import MANIFEST, TEMPORARY, new_id
from mindspore_rec.common.run.manifest_fields import MOST_WORKERS
from mindspore_rec.common.run.share import Share
from mindspore_rec.common.run.team import ALONE, Team
from mindspore_rec.common.run.write import write_checkpoint
from mindspore_rec.common.sync import sync
from mindspore_rec.train.checkpoint.arguments import check_states
from mindspore_rec.train.checkpoint.load import check_load, load_chain
from mindspore_rec.train.checkpoint.publication import Publication
from mindspore_rec.train.checkpoint.snapshot import write_full
from mindspore_rec.train.checkpoint.worker_states import WorkerStates
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["load_checkpoint", "save_checkpoint", "training_cell", "write_model"]

_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_HERE = -100  # AT_FDCWD: paths are relative to the working directory


def save_checkpoint(
    model: ms.train.Model | nn.Cell,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    states: Mapping[str, Any] | None = None,
    publication: Publication | None = None,
) -> None:
    """Save tables (with optimizer state), dense parameters and the optimizer's parameters.

    The directory is written under a temporary name, synced and renamed, so a crash leaves either
    the whole checkpoint or none. The checkpoint also contains the counts of keys that are not
    admitted yet.

    Several workers (see `mindspore_rec.launch`) call this function at the same time. Each worker
    writes its own rows. If one worker fails, an error is raised on all workers.

    Args:
        model: a `RecModel`, another `Model`, or a Cell. If `model` is a network, its tables (with
            optimizer state) and weights are saved. If `model` is a training cell, the optimizer's
            parameters are saved too.
        path: directory to make; its parent directory must exist.
        overwrite: whether to replace an existing checkpoint. At every moment, even after a crash,
            `path` contains a complete checkpoint, either the old or the new one. Default: False.
        states: dict from names to further objects whose states are saved, for example a
            `QuantileScale`. Each object has the methods `state_dict()` and
            `load_state_dict(state)`. Default: none.
        publication: `Publication` that names the builder. The builder is the function that makes
            the network for predictors. Default: None, which means that a predictor must be
            constructed with a network.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: `publication.announce` is set; only a `RecCheckpoint` announces checkpoints.
        FileExistsError: `path` exists and `overwrite` is False; or `overwrite` is True, but `path`
            is not a checkpoint that this function wrote. A FileExistsError is raised before any
            file is written.
        OSError: a file cannot be written; an existing checkpoint is unchanged.
        RuntimeError: the rows of a table are missing, because weights without rows were loaded into
            the network; see `keep_rows()`.

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
    write_model(model, path, overwrite, states, publication, {})


def write_model(
    model: ms.train.Model | nn.Cell,
    path: str | os.PathLike[str],
    overwrite: bool,
    states: Mapping[str, Any] | None,
    publication: Publication | None,
    further: Mapping[str, Any],
) -> None:
    """Save a checkpoint like `save_checkpoint`, with further entries of its states.

    Args:
        model, path, overwrite, states, publication: see `save_checkpoint`.
        further: dict from names to JSON values, which are saved beside the objects' states.
            `load_checkpoint` ignores these entries.
    """
    target = Path(path)
    team = Team(worker_group())
    checked = check_states(states)
    network = _network_of(publication)
    replaces = team.first(lambda: _check_target(target, overwrite))
    objects = {name: each.state_dict() for name, each in checked.items()}
    cell = training_cell(model)
    tables = {table.name: table for table in tables_of(cell)}
    made = target
    if replaces:
        target = target.resolve()  # follow a link to its target
        name = team.first(lambda: f"{TEMPORARY}{target.name}.{new_id()}")
        made = target.with_name(name)

    def write(directory: Path) -> dict[str, Any]:
        return write_full(cell, tables, {"objects": objects, **further}, directory, team.shares)

    write_checkpoint(made, lambda: _fields(tables.values(), network), write, team)
    if replaces:
        team.first(lambda: _replace(made, target))


def _network_of(publication: Publication | None) -> dict[str, Any] | None:
    if publication is None:
        return None
    if not isinstance(publication, Publication):
        raise TypeError(f"publication must be a Publication, got {type(publication).__name__}")
    if publication.announce is not None:
        raise ValueError("publication must not announce: a RecCheckpoint announces checkpoints")
    return publication.network


def _fields(tables: Iterable[TableParameter], network: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "kind": "full",
        "step": max((table.step for table in tables), default=0),
        "run": new_id(),
        "state": new_id(),
        "parent": None,
        "saved_at": time.time(),
        "watermark": None,
        "model": network,
    }


def _replace(made: Path, target: Path) -> None:
    _exchange(made, target)
    try:
        sync(target.parent)
    except OSError:
        # The directory could not be synced, so restore the old checkpoint.
        _exchange(made, target)
        with suppress(OSError):
            sync(target.parent)
        shutil.rmtree(made, ignore_errors=True)
        raise
    shutil.rmtree(made, ignore_errors=True)


def _check_target(target: Path, overwrite: bool) -> bool:
    """Return whether `target` is an existing checkpoint that the new checkpoint will replace."""
    if not isinstance(overwrite, bool):
        raise TypeError(f"overwrite must be a bool, got {overwrite!r}")
    if not os.path.lexists(target):
        return False
    if not overwrite:
        raise FileExistsError(
            f"path {target} exists already: overwrite=True replaces a checkpoint, another path "
            "keeps both"
        )
    if not (target / MANIFEST).is_file():
        raise FileExistsError(
            f"path {target} exists already and is no checkpoint of save_checkpoint: it is not "
            "overwritten"
        )
    return True


def _exchange(made: Path, target: Path) -> None:
    """Exchange the new directory and the existing directory atomically."""
    libc = ctypes.CDLL(None, use_errno=True)
    before, after = os.fsencode(made), os.fsencode(target)
    if libc.renameat2(_HERE, before, _HERE, after, _EXCHANGE) != 0:
        error = ctypes.get_errno()
        kept = target.with_name(f"{target.name}.{made.name[-16:]}")
        os.rename(made, kept)
        raise OSError(
            error,
            f"{os.strerror(error)}: this file system does not exchange two directories, so "
            f"{target} is the old checkpoint still, and the new one is at {kept}",
        )


def load_checkpoint(
    model: ms.train.Model | nn.Cell,
    path: str | os.PathLike[str],
    *,
    worker: int | None = None,
    workers: int | None = None,
    states: Mapping[str, Any] | None = None,
) -> None:
    """Load a checkpoint into a network.

    All files are checked before any table or parameter changes. All rows that were in the tables
    before the call are dropped. Optimizer state is loaded for tables that have an optimizer. The
    optimizer must be of the same kind as when the checkpoint was saved. The optimizer's parameters
    include the learning rate, so the saved rate replaces the rate of the present optimizer.

    Several workers (see `mindspore_rec.launch`) call this function at the same time. Each worker
    checks and loads only the parts that it needs. The checkpoint may have been written by any
    number of workers.

    Args:
        model: the model or cell, with the same structure and table names as the saved model.
        path: directory of a checkpoint that `save_checkpoint` wrote, or the directory of a
            `RecCheckpoint`. If `path` is the directory of a `RecCheckpoint`, the newest state is
            loaded.
        worker: index of this process, from 0. Set both `worker` and `workers` if several processes
            share the tables but were not started by one launcher. Default: None, which means the
            index of this worker; 0 if only `workers` is set.
        workers: number of processes that share the tables. `workers` may differ from the number of
            processes that wrote the checkpoint. Each process loads only the rows of its own keys,
            so each row is loaded by exactly one process. Default: None, which means the
            launcher's number of workers; 1 if there is no launcher, or if only `worker` is set.
        states: objects to restore. The names must be the same as in `states` of `save_checkpoint`
            or `RecCheckpoint`. Other objects are unchanged. Without `states`, a `RuntimeWarning`
            names the saved states that are not restored; `states={}` loads the network alone
            without a warning. Default: None.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        FileNotFoundError: there is no checkpoint at `path`.
        CheckpointError: a file is damaged, or the network's tables differ from the checkpoint's
            tables. CheckpointError is a subclass of ValueError. The message of a CheckpointError
            names the file. A CheckpointError is raised before any table or parameter changes.
        ValueError: the checkpoint has no state for a name in `states`, or an object in `states`
            rejects its saved state (a CheckpointError). The ValueError is raised before any table
            or parameter changes.
    """
    objects = check_states(states)
    by_hand = worker is not None or workers is not None
    team = ALONE if by_hand else Team(worker_group())
    workers = check_int("workers", 1 if workers is None else workers, 1, MOST_WORKERS)
    worker = check_int("worker", 0 if worker is None else worker, 0, workers - 1)
    cell = training_cell(model)
    shares: dict[str, Share | None] = {
        table.name: Share(worker, workers) if by_hand else team.shares.held(table)
        for table in tables_of(cell)
    }
    reader = Share(worker, workers) if by_hand else team.shares.of_network
    chain = team.each(lambda: _checked_chain(Path(path), cell, shares))
    # Load the states before the tables, so that no row has changed if an object rejects its state.
    if states is None:
        left = team.each(lambda: _names_of_states(chain[-1], reader))
    else:
        left = []
        team.each(lambda: _load_states(objects, chain[-1], reader, path))
    load_chain(cell, chain, shares)
    if left:
        _warn_of_states(left, path)


def _names_of_states(entry: Entry, reader: Share) -> list[str]:
    """On the first worker, return the names of the saved states; on other workers, return []."""
    return sorted(WorkerStates(entry, reader).names) if reader.worker == 0 else []


def _warn_of_states(names: list[str], path: Any) -> None:
    """Warn that the network was restored, but that the saved states of other objects were not."""
    warnings.warn(
        f"load_checkpoint restored the network alone: {path} also has the states of {names}, whose "
        f"objects are as they were before. Give these objects as states={{{names[0]!r}: ...}}, "
        "continue a training by RecCheckpoint.restore(), or say by states={} that the network is "
        "enough",
        RuntimeWarning,
        stacklevel=3,
    )


def _checked_chain(path: Path, cell: nn.Cell, shares: TableShares) -> list[Entry]:
    """Check the files that this worker reads, and return the checkpoint chain to load."""
    chain = chain_at(path)
    verify_chain(chain, lambda manifest: files_of(manifest, shares))
    check_load(cell, chain, shares)
    return chain


def _load_states(objects: dict[str, Any], entry: Entry, reader: Share, path: Any) -> None:
    """Load all states, or no state if an object rejects its state."""
    if not objects:
        return
    saved = WorkerStates(entry, reader)
    if missing := sorted(objects.keys() - set(saved.names)):
        raise ValueError(
            f"states must be of {sorted(saved.names)}, as {path} has them, got {missing}"
        )
    before: list[tuple[Any, Any]] = []
    try:
        for name, each in objects.items():
            before.append((each, each.state_dict()))
            saved.load(name, each)
    except BaseException:
        for each, state in before:
            each.load_state_dict(state)
        raise


def training_cell(model: Any) -> nn.Cell:
    """Return the cell with all parameters of a model, including optimizer parameters.

    Raises:
        TypeError: `model` is neither a Model nor a Cell.
    """
    if isinstance(model, nn.Cell):
        return model
    if isinstance(model, ms.train.Model):
        cell = model.train_network
        return cell if cell is not None else model._network
    raise TypeError(f"model must be a Model or a Cell, got {type(model).__name__}")
