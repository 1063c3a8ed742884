# SPDX-License-Identifier: Apache-2.0
"""A small run of checkpoints, and changes to it whose sizes and checksums are right again."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore import dtype as mstype

from mindspore_rec import (
    CountAdmission,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    RecCheckpoint,
    SketchAdmission,
    tables_of,
)
from mindspore_rec.checkpoint.manifest import _checksum, _own_checksum
from tests.checkpoint.test_checkpoint_deltas import Training
from tests.native_table import native_of

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


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


NASTY: list[Any] = [
    None, True, False, -1, 0, 1, 1 << 31, 1 << 32, 1 << 63, 1 << 70, -(1 << 63), 0.5, 1e308,
    float("nan"), float("inf"), "", "x", "../x", "/tmp/x", "a/b", MANIFEST, ".", "..", "table_0",
    "table_7.arrow", "table_0.arrow", "deleted_0.arrow", "counters_0.arrow", "dense.safetensors",
    "0" * 16, "\n", "\ud800", "count", "Int32", "sketch of 1 bytes", [], {}, [[]], [0, 0], [1, "x"],
    nested(50), nested(3000), {"__array__": "x"}, {"__array__": []}, "x" * 5000,
]  # fmt: skip


def mutate_json(value: Any, rng: random.Random, extra: list[Any]) -> Any:
    """The value with something in it deleted, replaced, doubled or exchanged."""
    at, path = value, 0
    while True:
        if not isinstance(at, (dict, list)) or not at:
            return rng.choice(NASTY)
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.85:
            at, path = at[key], path + 1
            continue
        change = rng.random()
        if change < 0.15:
            del at[key]
        elif change < 0.3 and isinstance(at, dict):
            at[rng.choice(["x", *map(str, keys), *(each for each in extra)])] = at[key]
        elif change < 0.4:
            other = rng.choice(keys)
            at[key], at[other] = at[other], at[key]
        elif change < 0.55 and type(at[key]) is int:
            at[key] += rng.choice([-1, 1, 1000])
        else:
            at[key] = rng.choice(NASTY + extra)
        return value


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """With flipped, lost or foreign bytes; mostly where formats have their headers."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        change = rng.random()
        region = rng.choice([len(made), 64, 900])
        at = rng.randrange(max(1, min(region, len(made))))
        if rng.random() < 0.4:
            at = max(0, len(made) - 1 - at)
        if change < 0.6 and made:
            made[at] = rng.choice([0, 1, 127, 128, 255, made[at] ^ (1 << rng.randrange(8))])
        elif change < 0.8:
            made[at : at + 8] = rng.choice(
                [(1 << 62).to_bytes(8, "little"), b"\xff" * 8, bytes(8), rng.randbytes(8)]
            )
        elif change < 0.9:
            del made[at : at + rng.choice([1, 8, 64])]
        else:
            made[at:at] = rng.randbytes(rng.choice([1, 8]))
    return bytes(made)
