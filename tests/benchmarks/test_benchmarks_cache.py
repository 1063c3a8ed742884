# SPDX-License-Identifier: Apache-2.0
"""The benchmark of tables with tiers runs in small and writes what it measured."""

from __future__ import annotations

import json

import pytest

from tests.support.processes import ROOT, run_python


@pytest.mark.parametrize("setup", ["ssd", pytest.param("redis", marks=pytest.mark.redis), "disk"])
def test_multi_level_cache(tmp_path, setup):
    out = tmp_path / "cache.json"
    run_python(
        ROOT / "benchmarks" / "multi_level_cache.py", "--rows", "20000", "--batch", "64", "--steps",
        "8", "--rounds", "1", "--fio-seconds", "0", "--ssd-path", tmp_path / "disk", "--only",
        setup, "--json", out,
    )  # fmt: skip
    figures = json.loads(out.read_text())["setups"][setup]
    assert figures["memory_samples_per_s"] > 0
    assert figures["prefetch"]["samples_per_s"] > 0
    assert figures["prefetch"]["a_step"]["prefetched_rows"] > 0
    assert figures["no_prefetch"]["a_step"]["prefetched_rows"] == 0
    assert figures["no_prefetch"]["a_step"]["host_misses"] > 0
    assert not list((tmp_path / "disk").iterdir()), "nothing is left on the disk"
