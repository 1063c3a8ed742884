# SPDX-License-Identifier: Apache-2.0
"""SsdStore.scan, contains and clear on NumPy arrays."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from mindspore_rec.ssd import SsdStore

ROW = 24


def rows_of(keys: np.ndarray, version: int) -> np.ndarray:
    words = keys.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    return words + np.arange(ROW // 8, dtype=np.uint64) + np.uint64(version << 32)


@pytest.fixture
def store(tmp_path):
    with SsdStore(tmp_path / "tier", ROW, segment_bytes=1 << 18, direct=False) as opened:
        yield opened


@pytest.mark.parametrize("most", [1, 7, 4096, 10**9])
@pytest.mark.parametrize("exact", [True, False])
def test_a_scan_gives_every_row_once(store, most, exact):
    keys = np.arange(-3000, 3000) if most > 1 else np.arange(200)
    store.write(keys, rows_of(keys, 1))
    store.erase(keys[:50])
    changed = keys[100:150].copy()
    store.write(changed, rows_of(changed, 2))
    parts = list(store.scan(most, exact=exact))
    assert all(1 <= len(part) <= most for part, _ in parts)
    assert all(rows.shape == (len(part), ROW) and rows.dtype == np.uint8 for part, rows in parts)
    got = np.concatenate([part for part, _ in parts])
    rows = np.concatenate([rows for _, rows in parts]).view(np.uint64)
    order = np.argsort(got)
    np.testing.assert_array_equal(got[order], keys[50:])
    expected = rows_of(keys[50:], 1)
    expected[50:100] = rows_of(changed, 2)
    np.testing.assert_array_equal(rows[order], expected)


def test_an_ended_or_closed_scan_gives_nothing(store):
    keys = np.arange(1000)
    store.write(keys, rows_of(keys, 1))
    scan = store.scan(100)
    next(scan)
    scan.close()
    assert list(scan) == []
    with store.scan(10_000, exact=True) as whole:
        assert len(next(whole)[0]) == 1000
        assert list(whole) == []
        assert list(whole) == []
    open_scan = store.scan(100)
    store.close()
    with pytest.raises(OSError, match="closed"):
        next(open_scan)
    with pytest.raises(OSError, match="closed"):
        store.scan()
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        store.scan(0)


def test_a_scan_keeps_its_store_and_a_forked_child_leaves_both_alone(tmp_path):
    store = SsdStore(tmp_path / "tier", ROW, direct=False)
    keys = np.arange(1000)
    store.write(keys, rows_of(keys, 1))
    scan = store.scan(100, exact=True)
    child = os.fork()
    if child == 0:
        del scan, store
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    del store
    assert sum(len(part) for part, _ in scan) == 1000
    del scan
    SsdStore(tmp_path / "tier").close()  # nobody holds it any more


def test_scanning_beside_a_writing_thread(store):
    keys = np.arange(20_000)
    store.write(keys, rows_of(keys, 1))
    stop = threading.Event()

    def overwrite() -> None:
        random = np.random.default_rng(0)
        version = 2
        while not stop.is_set():
            some = random.integers(0, len(keys), 2000)
            store.write(some, rows_of(some, version))
            version += 1

    writer = threading.Thread(target=overwrite)
    writer.start()
    try:
        for _ in range(5):
            seen = np.zeros(len(keys), bool)
            for part, rows in store.scan(1000):
                version = rows.view(np.uint64)[0, 0] - rows_of(part[:1], 0)[0, 0] >> np.uint64(32)
                np.testing.assert_array_equal(
                    rows.view(np.uint64)[0], rows_of(part[:1], int(version))[0]
                )
                seen[part] = True
            assert seen.all()
    finally:
        stop.set()
        writer.join()


def test_contains_and_clear(store, tmp_path):
    keys = np.arange(10_000)
    store.write(keys, rows_of(keys, 1))
    store.erase(keys[:10])
    asked = np.array([-1, 0, 9, 10, 9999, 10_000])
    assert store.contains(asked).tolist() == [False, False, False, True, True, False]
    assert store.contains(np.zeros(0, np.int64)).shape == (0,)
    with pytest.raises(TypeError, match="keys must be int64"):
        store.contains(asked.astype(np.int32))
    before = store.stats()
    assert before["disk_bytes"] > 0
    store.clear()
    assert len(store) == 0
    assert store.stats()["disk_bytes"] == 0
    assert not store.contains(asked).any()
    assert list(store.scan()) == []
    assert list((tmp_path / "tier").glob("*.seg")) == []
    store.write(keys[:5], rows_of(keys[:5], 3))
    store.close()
    with SsdStore(tmp_path / "tier", direct=False) as again:
        assert len(again) == 5
        rows, found = again.read(keys[:6])
        assert found.tolist() == [True] * 5 + [False]
        np.testing.assert_array_equal(rows[:5].view(np.uint64), rows_of(keys[:5], 3))
    with SsdStore(tmp_path / "tier", read_only=True) as reader:
        with pytest.raises(OSError, match="read-only"):
            reader.clear()
