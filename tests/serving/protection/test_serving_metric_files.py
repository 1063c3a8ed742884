# SPDX-License-Identifier: Apache-2.0
"""Counters in files have their space on the disk before anything is counted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from mindspore_rec.serve.protection.metric_files import give_back, reserve
from tests.support.processes import run_python

COUNT = """
import os
from pathlib import Path
from mindspore_rec.serve.protection.metric_files import reserve
from mindspore_rec.serve.protection.metrics import Metrics
reserve()
metrics = Metrics()
before = {path: path.stat().st_blocks for path in Path().iterdir()}
for operation in ("infer", "model", "status", "other"):
    for code in range(200, 220):
        metrics.began("http")
        metrics.answered("http", operation, str(code), 0.01)
assert {path: path.stat().st_blocks for path in Path().iterdir()} == before, before
print(os.getpid())
"""


def test_no_page_is_missing_and_what_is_not_used_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    printed = run_python("-c", COUNT, cwd=tmp_path)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) == 3 and min(sizes.values()) >= 1 << 16

    def counted() -> float:
        registry = CollectorRegistry()
        found = MultiProcessCollector(registry, str(tmp_path)).collect()
        samples = [each for metric in found for each in metric.samples]
        return sum(each.value for each in samples if each.name.endswith("_serving_requests_total"))

    assert counted() == 80
    give_back(int(printed))
    after = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(after) == 2  # those that count what is under way are gone with the process
    assert all(size < sizes[name] // 2 for name, size in after.items())
    assert counted() == 80
    give_back(int(printed))
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == after


def test_a_full_disk_is_an_error_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    reserve()  # counts in its own memory
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    with pytest.raises(OSError, match="no room to count in: No space left on device"):
        reserve()
