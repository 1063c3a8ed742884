# SPDX-License-Identifier: Apache-2.0
"""A device tier over a bounded host tier over an SSD: the same bits as all in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mindspore_rec import CacheConfig, SsdConfig
from tests.cache.device_run import MOST, assert_same, run

Names = Callable[[], str]


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_three_tiers_are_one_table(graph_mode: None, unique: Names, tmp_path: Path, policy: str):
    name = unique()
    config = CacheConfig(
        device_rows=MOST, host_rows=MOST + 6, ssd=SsdConfig(tmp_path, direct=False), policy=policy
    )
    plain = run(name, None, "lazy_adam", evict_filter_value=7, permit_filter_value=2)
    tiers = run(name, config, "lazy_adam", evict_filter_value=7, permit_filter_value=2)
    assert_same(plain, tiers)
    assert tiers["stats"]["written_down_rows"] > 0
    assert tiers["stats"]["device_hits"] > 0
