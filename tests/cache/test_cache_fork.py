# SPDX-License-Identifier: Apache-2.0
"""A process that forks, as data loaders do, while a table has threads of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from mindspore_rec import _native


def test_a_forked_child_can_end(tmp_path: Path) -> None:
    table = _native.Table(name="cache.fork", dim=2)
    level = {"kind": "ssd", "open": lambda size, _: _native.SsdStore(tmp_path / "ssd", size)}
    table.set_cache(host_rows=32, levels=[level])
    table.bind_optimizer("sgd")
    for step in range(4):
        ids = np.arange(20 * step, 20 * step + 20)
        table.prefetch_wait(table.prefetch(ids))
        _, ticket = table.lookup_train(ids)
        table.accumulate(ticket, np.ones((20, 2), np.float32))
        table.apply(0.1, step=step + 1)
    child = os.fork()
    if child == 0:
        table.close()
        os._exit(7)
    deadline = time.monotonic() + 60
    done, status = os.waitpid(child, os.WNOHANG)
    while done == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
        done, status = os.waitpid(child, os.WNOHANG)
    if done == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done == child and os.waitstatus_to_exitcode(status) == 7
    assert table.size() == 80
    table.close()
