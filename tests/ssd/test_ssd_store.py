# SPDX-License-Identifier: Apache-2.0
"""SsdStore on NumPy arrays: rows, errors, damage, the command line."""

from __future__ import annotations

import errno
import json
import multiprocessing
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec.common.tiers.ssd_command import main
from mindspore_rec.ssd import SsdCorruptionError, SsdStore
from tests.support.disks import mounted
from tests.support.missing import missing
from tests.support.processes import run_program

ROW = 192


def rows_of(keys: np.ndarray, version: int) -> np.ndarray:
    words = keys.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    return words + np.arange(ROW // 8, dtype=np.uint64) + np.uint64(version << 32)


def expect(store: SsdStore, keys: np.ndarray, version: int) -> None:
    rows, found = store.read(keys)
    assert found.all()
    np.testing.assert_array_equal(rows.view(np.uint64), rows_of(keys, version))


@pytest.fixture(params=[True, False], ids=["direct", "buffered"])
def direct(request, tmp_path):
    if request.param:
        try:
            SsdStore(tmp_path / "probe", ROW).close()
        except OSError as error:
            assert error.errno == errno.EINVAL
            assert "O_DIRECT" in str(error)
            missing("O_DIRECT", f"the file system of {tmp_path} does not have it")
    return request.param


@pytest.mark.parametrize("io_uring", [True, False])
def test_rows_come_back_after_reopening(tmp_path, direct, io_uring):
    keys = np.array([0, -1, 1, 2**63 - 1, -(2**63), *range(1000, 60000)], np.int64)
    options = {"direct": direct, "io_uring": io_uring, "segment_bytes": 1 << 20}
    with SsdStore(tmp_path / "tier", ROW, **options) as store:
        store.write(keys, rows_of(keys, 1))
        even = keys[::2].copy()
        store.write(even, rows_of(even, 2))
        store.erase(keys[:4])
    with SsdStore(tmp_path / "tier", **options) as store:
        assert store.row_bytes == ROW
        assert len(store) == len(keys) - 4
        expect(store, keys[4::2].copy(), 2)
        expect(store, keys[5::2].copy(), 1)
        rows, found = store.read(keys[:4])
        assert not found.any() and not rows.any()
        np.testing.assert_array_equal(np.sort(store.keys()), np.sort(keys[4:]))
        stats = store.stats()
        assert stats["rows"] == len(keys) - 4
        assert stats["read_bytes"] > 0
        if not io_uring:
            assert stats["io"] == "pread"
        assert store.verify() == []


def test_arguments_are_checked(tmp_path):
    with SsdStore(tmp_path / "tier", 16) as store:
        keys = np.arange(3)
        bad: np.ndarray
        for bad in (np.arange(3, dtype=np.int32), np.arange(3.0)):
            with pytest.raises(TypeError, match="keys must be int64, got"):
                store.read(bad)
        for bad in (np.zeros((3, 1), np.int64), np.arange(6)[::2]):
            with pytest.raises(ValueError, match="keys must be a C-contiguous vector"):
                store.erase(bad)
        for rows in (np.zeros((3, 15), np.uint8), np.zeros((2, 16), np.uint8), np.zeros(48)):
            with pytest.raises(ValueError, match="16 bytes for each of 3 keys"):
                store.write(keys, rows)
        assert len(store) == 0
    for options, text in (
        ({"max_bytes": -1}, "max_bytes must be at least 0, got -1"),
        ({"gc_ratio": 0.5}, "gc_ratio must be in"),
        ({"queue_depth": 0}, "queue_depth must be in"),
        ({"segment_bytes": 100}, "segment_bytes must have room"),
        ({"max_bytes": 10_000, "segment_bytes": 1 << 20}, "max_bytes must be at least"),
    ):
        with pytest.raises(ValueError, match=text):
            SsdStore(tmp_path / "other", 16, **options)
    with pytest.raises(ValueError, match="row_bytes must be 16"):
        SsdStore(tmp_path / "tier", 24)
    with pytest.raises(FileNotFoundError) as raised:
        SsdStore(tmp_path / "nothing")
    assert raised.value.filename == str(tmp_path / "nothing")
    with pytest.raises(OSError, match="closed"):
        store.read(np.arange(1))


def _open_elsewhere(path: Path, queue: multiprocessing.Queue) -> None:
    try:
        SsdStore(path, ROW)
        queue.put(0)
    except OSError as error:
        queue.put((error.errno, error.filename))


def test_a_second_process_is_refused(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with SsdStore(tmp_path / "tier", ROW):
        process = context.Process(target=_open_elsewhere, args=(tmp_path / "tier", queue))
        process.start()
        number, filename = queue.get(timeout=60)
        process.join()
    assert number == errno.EBUSY
    assert filename == str(tmp_path / "tier" / "LOCK")


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    keys = np.arange(1000)
    stores = [SsdStore(tmp_path / "tier", ROW)]
    stores[0].write(keys, rows_of(keys, 1))
    context = multiprocessing.get_context("fork")
    event = context.Event()

    def wait() -> None:
        stores.clear()  # destroys what is its parent's
        event.wait(60)

    child = context.Process(target=wait)
    child.start()
    stores[0].close()
    with SsdStore(tmp_path / "tier", ROW) as again:
        expect(again, keys, 1)
    event.set()
    child.join(60)
    assert child.exitcode == 0


def test_full_disk_is_an_error_and_reading_goes_on(tmp_path):
    with mounted(tmp_path / "small", 8) as mount:
        keys = np.arange(40_000)
        ballast = mount / "ballast"
        ballast.write_bytes(bytes(4 << 20))
        with SsdStore(mount / "tier", ROW, segment_bytes=1 << 20, direct=False) as store:
            written = 0
            with pytest.raises(OSError) as raised:  # noqa: PT012
                for written in range(0, len(keys), 500):
                    part = keys[written : written + 500]
                    store.write(part, rows_of(part, 1))
            assert raised.value.errno == errno.ENOSPC
            assert str(mount) in raised.value.filename
            expect(store, keys[:written], 1)
            store.flush()
            ballast.unlink()
            store.erase(keys[: written // 2])
            expect(store, keys[written // 2 : written], 1)
        with SsdStore(mount / "tier", direct=False) as store:
            expect(store, keys[written // 2 : written], 1)


def test_read_only(tmp_path):
    path = tmp_path / "tier"
    keys = np.arange(100)
    with SsdStore(path, ROW) as store:
        store.write(keys, rows_of(keys, 1))
    with SsdStore(path, read_only=True) as store, SsdStore(path, read_only=True) as other:
        expect(store, keys, 1)
        expect(other, keys, 1)
        for change in (
            lambda: store.write(keys, rows_of(keys, 2)),
            lambda: store.erase(keys),
            store.flush,
            store.compact,
        ):
            with pytest.raises(OSError, match="read-only") as raised:
                change()
            assert raised.value.errno == errno.EROFS
        expect(store, keys, 1)


def test_vanished_directory(tmp_path):
    path = tmp_path / "tier"
    keys = np.arange(100)
    store = SsdStore(path, ROW)
    store.write(keys, rows_of(keys, 1))
    store.flush()
    shutil.rmtree(path)
    store.write(keys[:1], rows_of(keys[:1], 2))
    with pytest.raises(FileNotFoundError, match="LOCK"):
        store.flush()
    expect(store, keys[1:], 1)


def flip_bit(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_flipped_bits_are_reported_with_file_and_offset(tmp_path, capsys):
    path = tmp_path / "tier"
    keys = np.arange(5000)
    with SsdStore(path, ROW, background_gc=False) as store:
        store.write(keys, rows_of(keys, 1))
        store.write(keys, rows_of(keys, 2))
    (name,) = [each.name for each in path.glob("*.seg")]
    record = ROW + 16
    offset = 3 * 4096 + (5000 + 321) * record  # of the second row of key 321
    for at in (offset, offset + 6, offset + 9, offset + 100):
        copy = tmp_path / f"copy{at}"
        shutil.copytree(path, copy)
        segment = copy / name
        flip_bit(segment, at)
        with SsdStore(copy) as store:
            with pytest.raises(SsdCorruptionError, match="damaged at byte") as raised:
                store.read(keys)
            assert raised.value.offset == offset
            assert raised.value.filename == str(segment)
            assert isinstance(raised.value, OSError)
            expect(store, keys[:321], 2)
            expect(store, keys[322:], 2)
            # Its neighbours may move on; it does not become an older one.
            with pytest.raises(SsdCorruptionError):
                store.compact()
            with pytest.raises(SsdCorruptionError):
                store.read(keys[321:322])
            expect(store, keys[:321], 2)
            expect(store, keys[322:], 2)
        assert main(["verify", str(copy), "--json"]) == 1
        problems = json.loads(capsys.readouterr().out)["problems"]
        assert [(each["path"], each["offset"]) for each in problems] == [(str(segment), offset)]
        assert main(["verify", str(copy)]) == 1
        assert f"{segment}, byte {offset}" in capsys.readouterr().out
    # The footer: made good from the records.
    flip_bit(path / name, (path / name).stat().st_size - 2 * 4096)
    with SsdStore(path, read_only=True) as store:
        assert store.stats()["rebuilt_footers"] == 1
        expect(store, keys, 2)
        assert "footer" in store.verify()[0]["problem"]


def test_command_line(tmp_path):
    path = tmp_path / "tier"
    keys = np.arange(20_000)
    with SsdStore(path, ROW, segment_bytes=1 << 20, background_gc=False) as store:
        for version in range(3):
            store.write(keys, rows_of(keys, version))
        store.erase(keys[:5000])

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run_program("-m", "mindspore_rec.ssd", *arguments)

    before = json.loads(run("inspect", str(path), "--json").stdout)
    assert before["rows"] == 15_000
    assert len(before["segment_list"]) == before["segments"]
    assert main(["inspect", str(path)]) == 0
    assert main(["compact", str(path)]) == 0
    after = json.loads(run("inspect", str(path), "--json").stdout)
    assert after["rows"] == 15_000
    assert after["disk_bytes"] < before["disk_bytes"] / 2
    assert sum(each["records"] for each in after["segment_list"]) == 15_000
    assert main(["verify", str(path)]) == 0
    with SsdStore(path) as store:
        expect(store, keys[5000:], 2)
    missing = run("verify", str(tmp_path / "nothing"))
    assert missing.returncode == 2
    assert "nothing" in missing.stderr
    with SsdStore(path):
        assert run("compact", str(path)).returncode == 2
