# SPDX-License-Identifier: Apache-2.0
"""A full checkpoint: one directory that appears whole or not at all.

manifest.json      format version, tables, every file's size and SHA-256
dense.ckpt         MindSpore's checkpoint of the dense parameters and the optimizer
table_<n>.arrow    one a table
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn

from mindspore_rec.checkpoint.table_file import read_table, write_table
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.parameter import TableParameter

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
DENSE = "dense.ckpt"


def save_checkpoint(model: ms.train.Model | nn.Cell, path: str | os.PathLike[str]) -> None:
    """Saves tables with optimizer state, dense parameters and the optimizer's own.

    The directory is written beside its place, synced and renamed: after a crash there is either the
    whole checkpoint or none. Counts of keys that are not admitted yet are not saved.

    Args:
        model: a `RecModel` or other `Model`, or a Cell (a network for its weights only, a training
            cell for everything).
        path: directory to make; its parent must exist.

    Raises:
        FileExistsError: there is something at path already.

    Example:
        >>> import tempfile
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> net = HashEmbeddingLookup(2, name="doc.save_checkpoint")
        >>> path = Path(tempfile.mkdtemp()) / "saved"
        >>> save_checkpoint(net, path)
        >>> sorted(p.name for p in path.iterdir())
        ['dense.ckpt', 'manifest.json', 'table_0.arrow']
    """
    cell, target = _cell_of(model), Path(path)
    if target.exists():
        raise FileExistsError(f"path {target} exists already; a checkpoint is never overwritten")
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(cell, beside)
        os.rename(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    _sync(target.parent)


def load_checkpoint(model: ms.train.Model | nn.Cell, path: str | os.PathLike[str]) -> None:
    """Makes the network what it was when `save_checkpoint` wrote the directory.

    Every file is checked before anything changes. Rows that a table has now are dropped. Optimizer
    state is loaded where an optimizer covers the table, which must then be of the kind that was
    saved.

    Args:
        model: as for `save_checkpoint`, built the same way, with tables of the same names.
        path: the directory.

    Raises:
        FileNotFoundError: there is no checkpoint at path.
        ValueError: a file is damaged, or the network's tables are not those of the checkpoint.
    """
    cell, source = _cell_of(model), Path(path)
    manifest = _checked_manifest(source)
    tables = {table.name: table for table in tables_of(cell)}
    if tables.keys() != manifest["tables"].keys():
        raise ValueError(
            f"the network's tables are {sorted(tables)}, those of {source} are "
            f"{sorted(manifest['tables'])}: they must be the same"
        )
    for name, table in tables.items():
        _check_shape(source, table, manifest["tables"][name])
    dense = ms.load_checkpoint(str(source / DENSE))
    missing, _ = ms.load_param_into_net(cell, dense)
    lost = [name for name in missing if name not in tables]
    if lost:
        raise ValueError(f"{source / DENSE} has no value for {lost}")
    for name, table in tables.items():
        saved = manifest["tables"][name]
        rows = read_table(source / saved["file"])
        if not table.native.has_optimizer:
            rows.pop("states", None)
        table.native.clear()
        table.native.import_rows(**rows)
        table.native.set_clock(saved["step"], 0)


def _cell_of(model: Any) -> nn.Cell:
    if isinstance(model, nn.Cell):
        return model
    if isinstance(model, ms.train.Model):
        cell = model.train_network
        return cell if cell is not None else model._network
    raise TypeError(f"model must be a Model or a Cell, got {type(model).__name__}")


def _write(cell: nn.Cell, directory: Path) -> None:
    tables = {}
    for i, table in enumerate(tables_of(cell)):
        file = f"table_{i}.arrow"
        rows = write_table(table.native, directory / file)
        stats = table.native.stats()
        tables[table.name] = {
            "file": file,
            "dim": table.dim,
            "key_dtype": str(table.key_dtype),
            "rows": rows,
            "state_width": stats["state_width"],
            "step": stats["step"],
        }
    ms.save_checkpoint(cell, str(directory / DENSE))
    files = {}
    for file_path in sorted(directory.iterdir()):
        os.chmod(file_path, 0o644)
        _sync(file_path)
        files[file_path.name] = {"size": file_path.stat().st_size, "sha256": _digest(file_path)}
    manifest = {"format_version": FORMAT_VERSION, "tables": tables, "files": files}
    text = json.dumps(manifest, indent=2) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8")
    _sync(directory / MANIFEST)
    os.chmod(directory, 0o755)


def _checked_manifest(source: Path) -> dict[str, Any]:
    path = source / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint at {source}: {path} is missing")
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {manifest.get('format_version')}, legal: {FORMAT_VERSION}"
        )
    for name, expected in manifest["files"].items():
        file = source / name
        if not file.is_file():
            raise ValueError(f"{file} is missing")
        if file.stat().st_size != expected["size"] or _digest(file) != expected["sha256"]:
            raise ValueError(f"{file} is damaged: its contents are not those that were saved")
    return manifest


def _check_shape(source: Path, table: TableParameter, saved: dict[str, Any]) -> None:
    for what, now in (("dim", table.dim), ("key_dtype", str(table.key_dtype))):
        if saved[what] != now:
            raise ValueError(
                f"table '{table.name}' has {what} {now}, in {source} it has {saved[what]}"
            )
    width = table.native.stats()["state_width"]
    if table.native.has_optimizer and width != saved["state_width"]:
        raise ValueError(
            f"table '{table.name}' has an optimizer with {width} floats of state a row, "
            f"{source} has {saved['state_width']}: it must be the optimizer that was saved"
        )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
