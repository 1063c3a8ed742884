# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a training process with an SSD tier: what flush() wrote is there."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec import _native
from tests.cache.dying_trainer import NAME, SEED, SETTINGS, open_table, train_one
from tests.cache.table_twins import Arrays, hash_of_name
from tests.support.processes import start_python

ROUNDS = 20
_FIELDS = ("keys", "values", "states", "counts", "last_steps", "last_times")


def row_bytes(rows: Arrays, i: int) -> bytes:
    return b"".join(rows[name][i].tobytes() for name in ("values", "states", "counts"))


class Lives:
    """The process that forks lives, and the lines it writes."""

    def __init__(self) -> None:
        self.process = start_python("-m", "tests.cache.dying_trainer", stdin=subprocess.PIPE)

    def next(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        what, number = line.split()
        return what, int(number)

    def kill_one(self, path: Path, start: int, chance: random.Random) -> tuple[int, int]:
        """Starts a life and kills it; its last flush, `start` where there was none, and step."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"path": str(path), "start": start}) + "\n")
        self.process.stdin.flush()
        flushed = last = start
        patience, pid, what = chance.randrange(1, 50), 0, ""
        while what != "ended":
            what, number = self.next()
            flushed = number if what == "flush" else flushed
            last = number if what == "step" else last
            pid = number if what == "pid" else pid
            patience -= 1
            if patience < 0 and pid:
                time.sleep(chance.random() * 0.01)
                subprocess.run(["kill", "-9", str(pid)], check=False)
        return flushed, last

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def lives():
    made = Lives()
    yield made
    made.end()


def versions_since(rows: Arrays, start: int, last: int) -> dict[int, list[tuple[int, bytes]]]:
    """Of each key, the rows it had from `start` on: (step, row), the first as it was there."""
    name = "dying.twin"
    seed = SEED ^ hash_of_name(NAME) ^ hash_of_name(name)
    twin = _native.Table(name=name, seed=seed, **SETTINGS)
    twin.bind_optimizer("adam")
    twin.set_clock(start, 0)
    twin.import_rows(*(rows[field] for field in _FIELDS))
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for i, key in enumerate(rows["keys"].tolist()):
        found[key].append((start, row_bytes(rows, i)))
    for step in range(start + 1, last + 1):
        keys = np.unique(train_one(twin, step))
        changed = twin.export_keys(keys, with_state=True)
        for i, key in enumerate(keys.tolist()):
            found[key].append((step, row_bytes(changed, i)))
    twin.close()
    return found


def test_flushed_rows_survive_kill_9(lives, tmp_path):
    chance = random.Random(1)
    table = open_table(str(tmp_path), 0)
    rows = table.export_rows(with_state=True)
    table.close()
    start, flushes = 0, 0
    for round_ in range(ROUNDS):
        flushed, last = lives.kill_one(tmp_path, start, chance)
        flushes += (flushed - start) // 5
        known = versions_since(rows, start, last)
        table = open_table(str(tmp_path), last)
        rows = table.export_rows(with_state=True)
        assert table.size() == len(rows["keys"]) == len(np.unique(rows["keys"]))
        table.close()
        found = {key: row_bytes(rows, i) for i, key in enumerate(rows["keys"].tolist())}
        for key, versions in known.items():
            at_flush = [row for step, row in versions if step <= flushed][-1:]
            # A row may be newer than the flush where it went down after it; none needs to be.
            legal = at_flush + [row for step, row in versions if step > flushed]
            if key in found:
                assert found[key] in legal, (round_, key, flushed, last)
            else:
                assert not at_flush, (round_, key, flushed, last)
        assert found.keys() <= known.keys()
        start = last
    assert len(found) > 1000
    assert flushes > ROUNDS
