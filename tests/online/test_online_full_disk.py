# SPDX-License-Identifier: Apache-2.0
"""A disk that fills up during saves: training goes on, and saves all when there is room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.run.chain import entries, newest_chain, verify
from tests.online.setting import PARTITIONS, Setting, begin_filling, uninterrupted
from tests.support.disks import fill_up, mounted
from tests.support.lives import Lives, assert_same

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with mounted(tmp_path / "disk", 4) as path:
        yield path


def wait_for_save(root: Path, after: int) -> int:
    """Until there is a checkpoint of a later step; which."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        found = entries(root)
        if found and found[-1].step > after:
            return found[-1].step
        time.sleep(0.02)
    raise TimeoutError(f"no checkpoint after step {after}")


def test_a_disk_that_fills_up(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, small_disk: Path, lives: Lives
) -> None:
    """What was saved before can be used all the time; nothing is lost in the end."""
    setting = Setting(broker.address, topic(PARTITIONS), tmp_path)
    setting.batches = 300
    filling = begin_filling(setting, 0.02)
    root, filler = small_disk / "run", small_disk / "filler"
    options = {**setting.trainer("full"), "root": str(root)}
    lives.begin(options)
    assert lives.reach(20)
    for left in (0, 30_000, 60_000):  # fails at once, or after some files of a checkpoint
        before = wait_for_save(root, 0)
        fill_up(filler, left)
        assert not lives.over
        step = lives.step
        assert lives.reach(step + 20), "training must go on"
        chain = newest_chain(root)
        assert chain and chain[-1].step >= before
        for entry in chain:
            verify(entry)
        saved = chain[-1].step
        if left == 30_000:  # a crash now: back to what could be saved
            lives.kill()
            lives.begin(options)
            assert lives.reach(saved + 10)
            assert lives.restored >= saved
        filler.unlink()
        wait_for_save(root, lives.step)
    assert lives.end() == 0
    filling.join()
    assert entries(root)[-1].step == setting.batches
    for entry in newest_chain(root):
        verify(entry)
    assert_same(setting.out("full"), uninterrupted(lives, setting))
