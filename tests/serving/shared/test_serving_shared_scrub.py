# SPDX-License-Identifier: Apache-2.0
"""Rows that processes share: those that change by themselves are found by the one that writes."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import _native, tables_of
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.rows.quantise import to_bytes
from mindspore_rec.common.run.chain import entries, entry_at
from mindspore_rec.common.run.network_file import NETWORK
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.following.scrub import Scrubber
from mindspore_rec.serve.shared.reader import shared_predictor
from mindspore_rec.serve.shared.tables import SharedTableRows, WrittenTable, table_spec
from mindspore_rec.serve.shared.writer import ServedInSharedMemory
from mindspore_rec.train.export.onnx import export_network
from tests.serving.serving_network import Marked, ids

ONE, TWO = "serving.one", "serving.two"


def damaged(run: FollowedRun) -> dict[str, list[int]]:
    assert run._scrubber is not None
    tables = run._scrubber.report()["tables"].items()
    return {name: table["damaged_keys"] for name, table in tables if table["damaged_rows"]}


def rounds(run: FollowedRun, wait: Any) -> None:
    assert run._scrubber is not None
    scrubber = run._scrubber
    enough = scrubber.report()["rounds"] + 2
    wait(lambda: scrubber.report()["rounds"] >= enough)


def places_of(fd: int, memory: mmap.mmap, key: int, value: bytes) -> list[int]:
    """Return the places of all copies of a row's numbers, which come right after its key."""
    row, begin = key.to_bytes(8, "little") + value, 0
    found: list[int] = []
    while True:  # the file is sparse, and larger than memory
        try:
            begin = os.lseek(fd, begin, os.SEEK_DATA)
        except OSError:
            return found
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        at = memory.find(row, begin, end)
        while at >= 0:
            found.append(at + 8)
            at = memory.find(row, at + 1, end)
        begin = end


def flip_rows(fd: int, key: int, value: bytes) -> None:
    """Flip a bit of each copy of a row."""
    with mmap.mmap(fd, os.fstat(fd).st_size) as memory:
        for place in places_of(fd, memory, key, value):
            memory[place + 2] ^= 4


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("rows", ["float32", "int8", "int4"])
def test_rows_that_changed_in_shared_memory_are_named(
    run: Path, tmp_path: Path, rows: str, wait: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = Marked()
    made = export_network(net, parsed_specs(["ids:INT64:-1,3"]))
    for table in tables_of(net):
        table.close()
    root, copy = tmp_path / "follows", tmp_path / "copy"
    copy.mkdir()
    (root / NETWORK).mkdir(parents=True)
    made.write(root / NETWORK)
    found = {(entry.step, entry.kind): entry.path for entry in entries(run)}
    fd = os.memfd_create("test")

    def comes(step: int, kind: str) -> None:
        path = found[step, kind]
        shutil.copytree(path, tmp_path / "beside")
        os.rename(tmp_path / "beside", root / path.name)

    def writer() -> FollowedRun:
        served = ServedInSharedMemory(root, copy, fd, rows)
        return FollowedRun(root, served, 1.0, 0.1, scrub_seconds=0.02)

    def value(step: int) -> bytes:
        values = np.full((1, 4), step, np.float32)
        bits = {"int8": 8, "int4": 4}
        return values.tobytes() if rows == "float32" else to_bytes(values, bits[rows]).tobytes()

    comes(0, "full")
    published = writer()
    shared = shared_predictor(root, copy, fd, range(4), 1.0)
    for step in (1, 2, 3):
        rounds(published, wait)
        comes(step, "delta")
        published.catch_up()
        assert published.applied.step == step
    rounds(published, wait)
    assert damaged(published) == {}
    flip_rows(fd, 21, value(3))
    wait(lambda: damaged(published) == {ONE: [21]})
    assert (shared.predict(ids(1, first=21))[0, :4] != 3).any()  # answers have it
    # What readers are told, and metrics are made of.
    published.catch_up()
    scrub = shared.status().scrub
    assert scrub is not None and scrub["tables"][ONE]["damaged_keys"] == [21]
    assert scrub["tables"][TWO]["damaged_rows"] == 0
    said = [each.getMessage() for each in caplog.records if "by themselves" in each.getMessage()]
    assert len(said) == 1 and f"table '{ONE}'" in said[0] and "in shared memory" in said[0]
    # A delta mends it.
    comes(4, "delta")
    published.catch_up()
    rounds(published, wait)
    assert damaged(published) == {} and (shared.predict(ids(1, first=21))[0, :4] == 4).all()
    # So does a full checkpoint, where the deltas before it are gone.
    flip_rows(fd, 30, value(4))
    wait(lambda: damaged(published) == {ONE: [30]})
    for path in root.glob("0*"):
        shutil.rmtree(path)
    comes(6, "delta")
    published.catch_up()
    assert published.applied.step == 4  # it does not follow
    rounds(published, wait)
    assert damaged(published) == {ONE: [30]}
    # Another process goes on from what is published; what it finds there is taken for right.
    published.close()

    again = writer()
    comes(5, "delta")
    again.catch_up()
    assert again.applied.step == 6
    rounds(again, wait)
    assert damaged(again) == {}
    flip_rows(fd, 33, value(6))
    wait(lambda: damaged(again) == {ONE: [33]})
    again.close()
    shared.close()
    os.close(fd)


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("full", [False, True])
def test_nothing_is_found_where_a_reader_stays_at_an_old_state(
    run: Path, tmp_path: Path, full: bool, wait: Any
) -> None:
    """A state is published, and then the writer gives up waiting for who reads the one before."""
    net = Marked()
    made = export_network(net, parsed_specs(["ids:INT64:-1,3"]))
    for table in tables_of(net):
        table.close()
    root, copy = tmp_path / "follows", tmp_path / "copy"
    copy.mkdir()
    (root / NETWORK).mkdir(parents=True)
    made.write(root / NETWORK)
    found = {(entry.step, entry.kind): entry.path for entry in entries(run)}
    fd = os.memfd_create("test")
    shutil.copytree(found[0, "full"], root / found[0, "full"].name)
    served = ServedInSharedMemory(root, copy, fd, "float32")
    published = FollowedRun(root, served, 1.0, 0.1, scrub_seconds=0.02)
    writer = _native.SharedWriter(served.memory, patience_seconds=0.1)
    served.runner.writer = writer
    reader = _native.SharedReader(served.memory, 3, 1)
    if full:  # of which it knows nothing before
        shutil.rmtree(root / found[0, "full"].name)
    last = max(step for step, kind in found if kind == "full") if full else 1
    path = found[last, "full" if full else "delta"]
    shutil.copytree(path, tmp_path / "beside")
    os.rename(tmp_path / "beside", root / path.name)
    place, state = reader.enter(), served.memory.sequence
    with pytest.raises(_native.SharedReaderStuckError):
        published.catch_up()
    assert published.applied.step == last and served.memory.sequence > state
    rounds(published, wait)
    assert damaged(published) == {}
    if not full:  # the next one is not published, and not taken for applied
        with pytest.raises(_native.SharedReaderStuckError):
            published.apply(entry_at(found[2, "delta"]))
        assert published.status(True).version == 1
        assert published.status(True).deltas_applied == 1
    reader.leave(place)
    published.catch_up()
    rounds(published, wait)
    assert damaged(published) == {}
    shared = shared_predictor(root, copy, fd, range(4), 1.0)
    assert (shared.predict(ids(1))[0, :4] == last).all()
    flip_rows(fd, 21, np.full((1, 4), last, np.float32).tobytes())
    wait(lambda: damaged(published) == {ONE: [21]})
    published.close()
    shared.close()
    os.close(fd)


@pytest.mark.parametrize("aged", [False, True])
def test_nothing_is_found_while_rows_are_published(aged: bool) -> None:
    """As fast as can be: rows are set, erased and become too old in each version."""
    arguments = {"name": "scrub.shared", "dim": 3, "max_idle_steps": 4 if aged else -1}
    fd = os.memfd_create("test")
    _native.SharedMemory.create(fd, [table_spec(arguments, "float32")], 1 << 30)
    memory = _native.SharedMemory(fd, write=True)
    writer = _native.SharedWriter(memory)
    writer.publish(b"", b"")
    table = WrittenTable("scrub.shared", 0, arguments, "Int64", "float32", lambda: writer)
    lock, reader = threading.Lock(), _native.SharedReader(memory, 511, 1)
    scrubber = Scrubber({"t": SharedTableRows(table, reader)}, {"t": 0}, 1e-3, lock)
    written = scrubber.noted({"t": table})["t"]
    scrubber.start()
    rng = np.random.default_rng(3)
    step = 0
    while step < 300 or (scrubber.report()["rounds"] < 5 and step < 100_000):
        step += 1
        with lock:
            keys = np.unique(rng.integers(0, 20_000, 500))
            values = rng.standard_normal((len(keys), 3)).astype(np.float32)
            steps = np.full(len(keys), step, np.uint32)
            written.import_rows(keys, values=values, last_steps=steps)
            written.erase_rows(rng.integers(0, 20_000, 50))
            written.set_horizon(step, 0)
            writer.publish(json.dumps(step).encode(), b"")
            writer.settle()
            scrubber.settle()
    scrubber.close()
    found = scrubber.report()
    assert found["rounds"] >= 5 and found["tables"]["t"]["damaged_rows"] == 0
    os.close(fd)
