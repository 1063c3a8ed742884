# SPDX-License-Identifier: Apache-2.0
"""What a bad day does to an SSD tier, with real files, mounts and processes.

Damage to sealed segments is in test_ssd_store.py, kill -9 in test_ssd_kill.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.common.tiers.ssd_command import main
from mindspore_rec.ssd import SsdCorruptionError, SsdStore
from tests.support.disks import mounted, mounted_ext4, remount
from tests.support.missing import missing

ROW = 48
RECORD = ROW + 16
DATA = 3 * 4096  # where records begin


def rows_of(keys: np.ndarray, version: int) -> np.ndarray:
    words = keys.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    return words + np.arange(ROW // 8, dtype=np.uint64) + np.uint64(version << 32)


def expect(store: SsdStore, keys: np.ndarray, version: int) -> None:
    rows, found = store.read(keys)
    assert found.all()
    np.testing.assert_array_equal(rows.view(np.uint64), rows_of(keys, version))


def change(path: Path, at: int, bits: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ bits]))


FLUSHED, LATER = 5000, 40_000


@pytest.fixture
def killed(tmp_path):
    """A tier as kill -9 leaves it: 5000 keys flushed twice, the others' rows written after that."""
    path = tmp_path / "tier"
    with SsdStore(path, ROW, segment_bytes=64 << 20, background_gc=False) as store:
        keys = np.arange(FLUSHED)
        store.write(keys, rows_of(keys, 1))
        store.write(keys, rows_of(keys, 2))
        store.flush()
        later = np.arange(FLUSHED, LATER)
        store.write(later, rows_of(later, 3))
        shutil.copytree(path, tmp_path / "killed")
    return tmp_path / "killed"


def only_segment(path: Path) -> Path:
    (segment,) = path.glob("*.seg")
    return segment


@pytest.mark.parametrize("tear", ["cut", "garbage", "zeros"])
def test_a_torn_tail_is_dropped(killed, tear):
    rng = np.random.default_rng(0)
    synced = DATA + 2 * FLUSHED * RECORD
    with SsdStore(killed, read_only=True) as store:
        written = len(store)
    assert FLUSHED < written <= LATER
    end = DATA + (FLUSHED + written) * RECORD
    for torn in (synced, synced + 1, *rng.integers(synced, end, 6), end - 1):
        path = killed.with_name("torn")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(killed, path)
        segment = only_segment(path)
        if tear == "cut":
            os.truncate(segment, torn)
        else:
            with segment.open("r+b") as file:
                file.seek(torn)
                file.write(rng.bytes(end - torn) if tear == "garbage" else bytes(end - torn))
        for _ in range(2):  # the second time it is sealed
            with SsdStore(path, direct=False) as store:
                left = len(store) - FLUSHED
                # Each record before the tear, none behind it.
                whole = (torn - synced) // RECORD
                assert left == whole or (tear == "zeros" and whole <= left <= whole + 1)
                expect(store, np.arange(FLUSHED), 2)
                if left:
                    expect(store, np.arange(FLUSHED, FLUSHED + left), 3)
                assert store.verify() == []


def test_damage_to_synced_rows_of_a_killed_tier_says_where_and_what_to_do(killed, capsys):
    segment = only_segment(killed)
    # Key 70's newest row, and with it a later one and a part that was never synced.
    places = [DATA + (FLUSHED + 70) * RECORD, DATA + (FLUSHED + 4000) * RECORD]
    assert main(["verify", str(killed)]) == 0
    for place in places:
        change(segment, place + 21)
    change(segment, DATA + (2 * FLUSHED + 7) * RECORD)
    for options in ({}, {"read_only": True}):
        with pytest.raises(SsdCorruptionError) as raised:
            SsdStore(killed, direct=False, **options)
        assert raised.value.filename == str(segment)
        assert raised.value.offset == places[0]
        message = str(raised.value)
        assert f"damaged at byte {places[0]}: record {FLUSHED + 70}" in message
        assert f"python -m mindspore_rec.ssd verify {killed}" in message
        assert "go on from a checkpoint" in message
    capsys.readouterr()
    assert main(["verify", str(killed), "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(each["path"], each["offset"]) for each in problems] == [
        (str(segment), place) for place in places
    ]
    # A file cut off within what was synced is damage, no torn tail.
    os.truncate(segment, DATA + (2 * FLUSHED - 1) * RECORD)
    with pytest.raises(SsdCorruptionError):
        SsdStore(killed, direct=False)


def test_verify_lists_every_file_that_is_damaged(tmp_path):
    path = tmp_path / "tier"
    keys = np.arange(30_000)
    with SsdStore(path, ROW, segment_bytes=256 << 10, background_gc=False) as store:
        store.write(keys, rows_of(keys, 1))
    first, second, third, fourth = sorted(path.glob("*.seg"))[:4]
    first.unlink()
    change(second, 8)  # the header
    change(third, DATA + 5 * RECORD)
    change(fourth, DATA + 9 * RECORD + 20)
    with pytest.raises(SsdCorruptionError, match="the segment is missing"):
        SsdStore(path)
    problems = SsdStore.verify_files(path)
    assert [each["path"] for each in problems] == [*map(str, (first, second, third, fourth))]
    assert [each["offset"] for each in problems][2:] == [DATA + 5 * RECORD, DATA + 9 * RECORD]
    (path / "MANIFEST").unlink()
    assert [each["path"] for each in SsdStore.verify_files(path)] == [str(path / "MANIFEST")]
    with pytest.raises(FileNotFoundError):
        SsdStore.verify_files(tmp_path / "nothing")
    with SsdStore(tmp_path / "open", ROW), pytest.raises(OSError, match="already open elsewhere"):
        SsdStore.verify_files(tmp_path / "open")


def test_a_full_disk_refuses_writes_and_keeps_every_row(tmp_path):
    keys = np.arange(400_000)
    with mounted_ext4(tmp_path, 32) as mount:
        ballast = mount / "ballast"
        ballast.write_bytes(bytes(12 << 20))
        with SsdStore(mount / "tier", ROW, segment_bytes=1 << 20) as store:  # O_DIRECT
            written = 0
            for _ in range(3):  # it stays full
                with pytest.raises(OSError, match="No space left on device") as raised:
                    for written in range(written, len(keys), 500):  # noqa: B020
                        part = keys[written : written + 500]
                        store.write(part, rows_of(part, 1))
                assert raised.value.errno == errno.ENOSPC
                assert str(mount) in raised.value.filename
            assert 0 < written < len(keys) - 500
            expect(store, keys[:written], 1)
            store.flush()
            assert sum(len(part) for part, _ in store.scan(exact=True)) == len(store)
            ballast.unlink()
            store.write(keys[: written + 500], rows_of(keys[: written + 500], 2))
            store.flush()
            expect(store, keys[: written + 500], 2)
        with SsdStore(mount / "tier") as store:
            expect(store, keys[: written + 500], 2)
            assert store.verify() == []


def test_a_disk_that_goes_away_is_an_error_and_what_was_flushed_comes_back(tmp_path):
    keys = np.arange(60_000)
    shut_down = 0x8004587D  # ext4's ioctl: from here on every access fails with EIO
    with mounted_ext4(tmp_path, 32) as mount:
        store = SsdStore(mount / "tier", ROW, segment_bytes=1 << 20)
        store.write(keys, rows_of(keys, 1))
        store.flush()
        store.write(keys[:100], rows_of(keys[:100], 2))
        os.sync()
        directory = os.open(mount, os.O_RDONLY)
        fcntl.ioctl(directory, shut_down, struct.pack("I", 2))
        os.close(directory)
        with pytest.raises(OSError, match="Input/output error") as raised:
            for version in range(3, 30):
                store.write(keys, rows_of(keys, version))
        assert raised.value.errno == errno.EIO
        for _ in range(2):
            with pytest.raises(OSError):
                store.flush()
        for part in (keys[:1], keys[-5000:]):  # from the buffer, or not at all
            with contextlib.suppress(OSError):
                rows, found = store.read(part)
                versions = (rows.view(np.uint64)[:, 0] - rows_of(part, 0)[:, 0]) >> np.uint64(32)
                assert found.all() and (versions >= 1).all() and (versions < 30).all()
        with pytest.raises(OSError):
            store.close()
    with (
        mounted_ext4(tmp_path, 32) as mount,
        SsdStore(mount / "tier") as store,
    ):
        expect(store, keys[100:], 1)
        rows, found = store.read(keys[:100])
        assert found.all()
        assert store.verify() == []


def test_a_read_only_file_system(tmp_path):
    keys = np.arange(1000)
    with mounted(tmp_path / "mount", 8) as mount:
        path = mount / "tier"
        with SsdStore(path, ROW, segment_bytes=1 << 20, direct=False) as store:
            store.write(keys, rows_of(keys, 1))
        remount(mount, "ro")
        for place in (path, mount / "new"):
            with pytest.raises(OSError, match="Read-only file system") as raised:
                SsdStore(place, ROW, direct=False)
            assert raised.value.errno == errno.EROFS
            assert str(place) in raised.value.filename
        with SsdStore(path, direct=False, read_only=True) as store:
            expect(store, keys, 1)
        assert main(["verify", str(path)]) == 0


NATIVE = """
import importlib.util, os, sys
import numpy as np
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
path = sys.argv[2]
"""


def start(script: str, path: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", NATIVE + script, _native.__file__, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_directory_without_permission():
    if os.geteuid() != 0:
        missing("root", "needs another user to be")
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        path = Path(root) / "tier"
        keys = np.arange(100)
        with SsdStore(path, ROW, direct=False) as store:
            store.write(keys, rows_of(keys, 1))
        script = """
module = open(sys.argv[1], "rb")
os.setuid(65534)
for place in (path, os.path.dirname(path) + "/new"):
    try:
        native.SsdStore(place, 48, direct=False)
    except PermissionError as error:
        print(error.filename)
with native.SsdStore(path, direct=False, read_only=True) as store:
    print(len(store))
"""
        out, error = start(script, path).communicate(timeout=60)
        assert error == ""
        assert out.splitlines() == [f"{path}/LOCK", f"{root}/new", "100"]


def test_of_many_processes_at_once_one_has_it(tmp_path):
    script = """
try:
    store = native.SsdStore(path, 48, direct=False)
    print("open", flush=True)
except OSError as error:
    print(error, flush=True)
sys.stdin.read()
"""
    path = tmp_path / "tier"
    processes = [start(script, path) for _ in range(6)]
    lines = []
    for process in processes:
        assert process.stdout is not None
        lines.append(process.stdout.readline().strip())
    # Killed, it leaves nothing that would keep the next one out.
    for process in processes:
        process.kill()
        process.communicate()
    assert lines.count("open") == 1
    refused = [line for line in lines if line != "open"]
    assert all("already open elsewhere" in line and f"{path}/LOCK" in line for line in refused)
    SsdStore(path, ROW, direct=False).close()


def test_a_directory_removed_or_replaced_while_open(tmp_path):
    path = tmp_path / "tier"
    keys = np.arange(20_000)
    store = SsdStore(path, ROW, segment_bytes=256 << 10)
    store.write(keys, rows_of(keys, 1))
    store.flush()
    shutil.rmtree(path)
    expect(store, keys, 1)  # the files are open
    with pytest.raises(FileNotFoundError) as raised:
        for version in range(2, 20):  # more than the segment that is open has room for
            store.write(keys, rows_of(keys, version))
    assert str(path) in raised.value.filename
    with pytest.raises(FileNotFoundError, match="no longer there"):
        store.flush()
    # Somebody else makes one anew: the two do not mix.
    with SsdStore(path, ROW) as other:
        other.write(keys[:10], rows_of(keys[:10], 50))
        files = {file.name: file.stat().st_ino for file in path.iterdir()}
        for change_it in (store.flush, store.clear):
            with pytest.raises(OSError, match="replaced by another file") as replaced:
                change_it()
            assert replaced.value.errno == errno.ESTALE
        with contextlib.suppress(OSError):
            for version in range(20, 40):
                store.write(keys, rows_of(keys, version))
        with pytest.raises(OSError):
            store.close()
        assert {file.name: file.stat().st_ino for file in path.iterdir()} == files
    with SsdStore(path) as other:
        assert len(other) == 10
        expect(other, keys[:10], 50)
        assert other.verify() == []
