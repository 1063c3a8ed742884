# SPDX-License-Identifier: Apache-2.0
"""kill -9 in the middle of writes: what flush acknowledged is there, nothing else is made up."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from mindspore_rec import _native
from mindspore_rec.ssd import SsdStore

SCRIPT = Path(__file__).with_name("ssd_writer_script.py")
_spec = importlib.util.spec_from_file_location("ssd_writer_script", SCRIPT)
assert _spec is not None and _spec.loader is not None
writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(writer)

KILLS = 50


def run_and_kill(path: Path, first: int, seconds: float) -> tuple[int, int]:
    """Returns the last round flushed and the last round done (first - 1: none)."""
    command = [sys.executable, str(SCRIPT), _native.__file__, str(path), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]  # it has begun
        time.sleep(seconds)
        process.kill()
        lines += process.stdout.readlines()
    last = {"flushed": first - 1, "done": first - 1}
    for line in lines:
        word, _, number = line.strip().partition(" ")
        if line.endswith("\n") and number:
            last[word] = int(number)
    return last["flushed"], last["done"]


def states(path: Path, versions: np.ndarray, flushed: int, first: int) -> tuple[np.ndarray, int]:
    """What the tier holds, as the round that each key's row is of (-1: none), checked.

    `versions` is what it held before round `first`. After the acknowledged rounds the log may hold
    any prefix of the following one or more.
    """
    with SsdStore(path, writer.ROW) as store:
        keys = np.arange(writer.KEYS, dtype=np.int64)
        raw, found = store.read(keys)
        assert len(store) == found.sum()
    words = raw.view(np.int64)
    now = np.where(found, (words[:, 0] - keys * 1_000_003) // 31, -1)
    expected = writer.rows_of(keys, 0) + 31 * now[:, None]
    np.testing.assert_array_equal(words[found], expected[found])

    state = versions.copy()
    for number in range(first, flushed + 1):
        state[writer.written(number)] = number
        state[writer.erased(number)] = -1
    for number in range(flushed + 1, flushed + 1000):
        if (state == now).all():
            return now, number
        # A prefix of what this round wrote, then a prefix of what it erased.
        for changed, value in ((writer.written(number), number), (writer.erased(number), -1)):
            different = np.flatnonzero(now[changed] != value)
            keep = different[0] if len(different) else len(changed)
            # Keys that had that value before say nothing; try the longest prefix first.
            trial = state.copy()
            trial[changed[:keep]] = value
            if (trial == now).all():
                return now, number + 1
            state[changed] = value
    raise AssertionError("the rows are of no moment after the last flush")


def test_fifty_kills(tmp_path):
    path = tmp_path / "tier"
    rng = np.random.default_rng(1)
    versions = np.full(writer.KEYS, -1)
    first = 0
    acknowledged = 0
    for _ in range(KILLS):
        flushed, _ = run_and_kill(path, first, rng.uniform(0.0, 0.12))
        acknowledged += flushed - first + 1
        versions, first = states(path, versions, flushed, first)
    assert acknowledged > KILLS  # rounds, so there was something to lose
