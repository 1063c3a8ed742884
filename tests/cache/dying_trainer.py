# SPDX-License-Identifier: Apache-2.0
"""Trains a table with an SSD tier in a process that is to be killed.

Each line of standard input, JSON, starts one life, a fork: importing MindSpore takes seconds.
Lives say on standard output what they have done: `pid N`, `step N`, `flush N`, `ended`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.tiers.attach import attach
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.common.tiers.ssd_config import SsdConfig

NAME = "dying/table"
SEED = 5
SETTINGS: dict[str, Any] = {"dim": 8, "init_kind": "normal", "init_b": 0.1}


def cache_of(path: str) -> CacheConfig:
    return CacheConfig(host_rows=300, ssd=SsdConfig(path, direct=False), leftover="keep")


def open_table(path: str, start: int) -> Any:
    """The table as the last life left it."""
    table = _native.Table(name=NAME, seed=SEED, **SETTINGS)
    attach(table, cache_of(path))
    table.bind_optimizer("adam")
    table.set_clock(start, 0)
    return table


def train_one(table: Any, step: int) -> np.ndarray:
    """A step whose keys and gradients follow from its number; its keys."""
    rng = np.random.default_rng(step)
    ids = rng.integers(0, 300 if step % 2 else 4000, 150)
    _, ticket = table.lookup_train(ids)
    table.accumulate(ticket, rng.normal(size=(len(ids), SETTINGS["dim"])).astype(np.float32))
    table.apply(0.1, step=step)
    return ids


def say(what: str, number: int) -> None:
    os.write(1, f"{what} {number}\n".encode())


def live(path: str, start: int) -> None:
    table = open_table(path, start)
    step = start
    while True:
        step += 1
        say("step", step)
        train_one(table, step)
        if step % 5 == 0:
            table.flush()
            say("flush", step)


def main() -> None:
    for line in sys.stdin:
        life = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                live(life["path"], life["start"])
            finally:
                os._exit(1)
        say("pid", pid)
        os.waitpid(pid, 0)
        say("ended", pid)


if __name__ == "__main__":
    main()
