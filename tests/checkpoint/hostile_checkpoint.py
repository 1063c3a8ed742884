# SPDX-License-Identifier: Apache-2.0
"""A small run of checkpoints, and changes to it whose sizes and checksums are right again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, dtype as mstype, nn

from mindspore_rec import (
    CountAdmission,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    RecCheckpoint,
    SketchAdmission,
    tables_of,
)
from mindspore_rec.common.run.manifest import _checksum, _own_checksum
from tests.checkpoint.test_checkpoint_deltas import Training
from tests.support.native_table import native_of

DIM = 3
MANIFEST = "manifest.json"


class Cell(nn.Cell):
    """A table of each kind and a dense parameter."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.count = HashEmbeddingLookup(
            DIM, mstype.int64, name=f"{name}.count", admission=CountAdmission(2),
            eviction=Eviction(max_idle_steps=5),
        )  # fmt: skip
        self.sketch = HashEmbeddingLookup(
            DIM, mstype.int32, name=f"{name}.sketch",
            admission=SketchAdmission(2, sketch_bytes=1 << 10),
        )  # fmt: skip
        self.static = EmbeddingLookup(9, DIM, name=f"{name}.static")
        self.dense = Parameter(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), name="dense")


def close(cell: nn.Cell) -> None:
    for table in tables_of(cell):
        table.close()


class Noise:
    """Something with a state that has arrays and numbers."""

    def __init__(self) -> None:
        self.seen = [1.5, np.arange(4)]

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "name": "noise", "none": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = [float(state["seen"][0]), np.asarray(state["seen"][1])]


def make_run(root: Path, name: str) -> None:
    """A full checkpoint, and deltas after two steps each."""
    cell, rng = Cell(name), np.random.default_rng(0)
    for table in tables_of(cell):
        table.bind_optimizer("adam")
    checkpoint = RecCheckpoint(
        root, every_steps=100, delta_every_steps=2, keep=9, states={"noise": Noise()}
    )
    training = None
    for step in range(1, 8):
        if step == 4:
            training = Training(cell, checkpoint)
        for table in tables_of(cell):
            native = native_of(table)
            native.set_event_time(1000 + step)
            ids = rng.integers(0, 9 if native.vocabulary else 40, 30)
            _, ticket = native.lookup_train(ids)
            native.accumulate(ticket, rng.normal(size=(30, DIM)).astype(np.float32))
            native.apply(0.1, step=step)
            if not native.vocabulary:
                native.erase(rng.integers(0, 40, 3))
        if training is not None:
            training.step()
    assert training is not None
    training.end()
    close(cell)


def copy(root: Path, target: Path) -> Path:
    """A copy of links, whose files must be replaced and not changed."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(root, target, copy_function=os.link))


def replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def write_manifest(directory: Path, manifest: Any) -> None:
    """With the right checksum, if it is an object."""
    if isinstance(manifest, dict):
        manifest.pop("crc32c", None)
        manifest["crc32c"] = _own_checksum(manifest)
    replace(directory / MANIFEST, json.dumps(manifest).encode())


def fix(directory: Path) -> None:
    """Sizes and checksums in the manifest are those of the files."""
    manifest = json.loads((directory / MANIFEST).read_text())
    for name, file in manifest["files"].items():
        if (directory / name).is_file():
            file["size"] = (directory / name).stat().st_size
            file["crc32c"] = _checksum(directory / name)
    write_manifest(directory, manifest)
