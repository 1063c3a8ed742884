# SPDX-License-Identifier: Apache-2.0
"""Locks of directories when a process that has forked is killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.common.tiers.ssd_config import SsdConfig
from mindspore_rec.common.tiers.ssd_directory import SsdDirectory
from mindspore_rec.ssd import SsdStore
from tests.ssd.forked_holder import killed_beside_its_child

KEYS = np.arange(100)


def filled(path: Path) -> SsdStore:
    store = SsdStore(path, 16, direct=False)
    store.write(KEYS, np.ones((100, 4), np.float32))
    store.flush()
    return store


def test_a_killed_trainer_leaves_its_rows_though_a_forked_child_lives(tmp_path):
    with (
        killed_beside_its_child(lambda: filled(tmp_path / "tier")),
        SsdStore(tmp_path / "tier", direct=False) as store,
    ):
        assert store.contains(KEYS).all()


def test_leftovers_that_another_process_has_open_stay_where_they_are(tmp_path):
    path = tmp_path / "users" / "rows-1"
    with filled(path) as store:
        config = CacheConfig(
            host_rows=9, ssd=SsdConfig(str(tmp_path), direct=False), leftover="keep"
        )
        with pytest.raises(OSError, match="cannot be renamed: another table or process"):
            SsdDirectory("users", config).open(row_bytes=16, generation=0)
        discard = CacheConfig(
            host_rows=9, ssd=SsdConfig(str(tmp_path), direct=False), leftover="discard"
        )
        with pytest.raises(OSError, match="cannot be removed: another table or process"):
            SsdDirectory("users", discard)
        store.flush()  # its files are where they were
    with SsdDirectory("users", config).open(row_bytes=16, generation=0) as again:
        assert again.path == str(tmp_path / "users" / "rows-0")
        assert again.contains(KEYS).all()


def test_a_directory_is_made_with_its_parents(tmp_path):
    _native.make_directories(tmp_path / "a" / "b")
    _native.make_directories(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    _native.make_directories(bytes(tmp_path / "c"))
    assert (tmp_path / "c").is_dir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(FileExistsError) as raised:
            _native.make_directories(path)
        assert raised.value.filename == str(tmp_path / "file")


@pytest.mark.parametrize("use", [_native.make_directories, _native.FileLock])
def test_a_path_with_a_nul_is_no_shorter_path(tmp_path, use):
    for path in (bytes(tmp_path / "a") + b"\0b", f"{tmp_path / 'a'}\0b"):
        with pytest.raises(ValueError, match=r"path must have no NUL, got b?'.*a\\x00b'"):
            use(path)
    assert not list(tmp_path.iterdir())
