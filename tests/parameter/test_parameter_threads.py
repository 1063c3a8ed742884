# SPDX-License-Identifier: Apache-2.0
"""A system that gives a process no more threads: tables go on with those there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Every new thread would have a stack larger than the address space.
PROGRAM = """
import ctypes
import warnings

import numpy as np

import mindspore_rec
from mindspore_rec import _native

table = _native.Table(name="starved", dim=4)
mindspore_rec.set_num_threads(1)
threads = ctypes.CDLL(None)
before, attributes = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
assert threads.pthread_getattr_default_np(before) == 0
assert threads.pthread_attr_init(attributes) == 0
assert threads.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 50)) == 0
assert threads.pthread_setattr_default_np(attributes) == 0

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    mindspore_rec.set_num_threads(4)
assert [str(each.message) for each in caught if each.category is RuntimeWarning] == [
    "only 1 of 4 threads could be started: the limits of the system (ulimit -u, ulimit -v, the "
    "container's pids) or a forked child allow no more"
], caught
assert mindspore_rec.get_num_threads() == 1
keys = np.arange(20000)
table.put(keys, np.ones((20000, 4), np.float32))
assert len(table.keys()) == 20000
assert threads.pthread_setattr_default_np(before) == 0  # MindSpore needs some to end
print("done")
"""


def test_a_process_without_more_threads_works_with_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    lines = [line for line in done.stderr.splitlines() if line.startswith("mindspore_rec:")]
    assert len(lines) == 1, done.stderr
    assert "only 1 of 4 threads could be started" in lines[0]
