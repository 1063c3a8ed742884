# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: an ordered end; the next run goes on where it was."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.online_learning.kafka.broker import Broker
from mindspore_rec.common.run.chain import newest_chain
from tests.online.setting import BATCHES, PARTITIONS, Setting, begin_filling, uninterrupted
from tests.support.lives import Lives, assert_same

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]


def test_sigterm(broker: Broker, topic: Callable[..., str], tmp_path: Path, lives: Lives) -> None:
    """The step is finished and saved, and none is trained again."""
    setting = Setting(broker.address, topic(PARTITIONS), tmp_path)
    filling = begin_filling(setting, 0.005)
    options = setting.trainer("stopped", graph=True)
    for step in (25, 140, 141):
        lives.begin(options)
        assert lives.reach(step)
        lives.signal(signal.SIGTERM)
        assert lives.end() == 0
        assert lives.words[-2:] == ["trained", "exit"] and lives.step < BATCHES
        root = Path(options["root"])
        assert [entry.step for entry in newest_chain(root)][-1] == lives.step
        last = lives.step
    lives.begin(options)
    assert lives.end() == 0
    assert lives.restored == last
    filling.join()
    assert_same(setting.out("stopped"), uninterrupted(lives, setting, graph=True))
