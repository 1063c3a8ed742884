# SPDX-License-Identifier: Apache-2.0
"""A trainer that forks while one thread is inside a table, and what its child sees there.

Usage: fork_script.py TIER PLACE, TIER one of "python", "ssd" (a directory) and "redis" (a URL).
Prints the child's findings and then the parent's, a JSON object each.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.tiers.redis.tier import RedisTier
from tests.cache.native_calls import CALLS, FIXED, inside, public_names, small_table

NAME = "fork.table"


def opened(tier: str, place: str) -> tuple[_native.Table, list[Any]]:
    """A table of 200 rows, of which 64 in host memory, over the tier."""
    tiers: list[Any] = []

    def open_tier(row_bytes: int, generation: int) -> Any:
        tiers.append(
            _native.SsdStore(place, row_bytes)
            if tier == "ssd"
            else RedisTier(place, NAME, row_bytes, generation)
        )
        return tiers[-1]

    table = _native.Table(name=NAME, dim=2)
    table.set_cache(host_rows=64, levels=[{"kind": tier, "open": open_tier}])
    table.bind_optimizer("sgd")
    for first in range(0, 200, 40):
        table.put(np.arange(first, first + 40), np.ones((40, 2), np.float32))
    table.flush()
    table.prefetch_wait(table.prefetch(np.arange(0, 40)))  # its threads are there
    return table, tiers


def refusals(thing: Any, calls: dict[str, Any]) -> dict[str, str]:
    """What each call raises."""
    said = {}
    for name, call in calls.items():
        faulthandler.dump_traceback_later(20, exit=True)
        try:
            call(thing)
            said[name] = "works"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def in_child(table: _native.Table, plain: _native.Table, tiers: list[Any], tier: str) -> None:
    keys = np.arange(3)
    found: dict[str, Any] = {"pid": os.getpid(), "table": refusals(table, CALLS)}
    found["plain"] = refusals(plain, {"lookup": CALLS["lookup"], "size": CALLS["size"]})
    if tier == "ssd":
        found["tier"] = refusals(
            tiers[0],
            {
                "read": lambda store: store.read(keys),
                "erase": lambda store: store.erase(keys),
                "clear": lambda store: store.clear(),
                "flush": lambda store: store.flush(),
                "scan": lambda store: store.scan(),
                "stats": lambda store: store.stats(),
                "keys": lambda store: store.keys(),
                "len": len,
            },
        )
    # One of its own by the same name, with tiers and threads.
    _native.set_num_threads(3)
    own, own_tier = small_table(NAME)
    many = np.arange(100_000)
    another = _native.Table(name="fork.another", dim=2)
    another.lookup(many, insert=True)
    own.prefetch_wait(own.prefetch(np.arange(0, 40)))
    found["own"] = [own.size(), another.size()]
    found["threads"] = len(os.listdir("/proc/self/task"))
    found["own id"] = own.id
    own.close()
    another.close()
    found["own tier closed"] = own_tier.closed
    print(json.dumps(found), flush=True)
    # And out by the ordinary way, which collects what the parent made too.
    tiers.clear()
    del table, plain
    sys.exit(7)


def main() -> None:
    tier, place = sys.argv[1:]
    plain = _native.Table(name="fork.plain", dim=2)
    plain.lookup(np.arange(1000), insert=True)
    release = threading.Event()
    if tier == "python":
        table, memory = small_table(NAME)
        tiers: list[Any] = [memory]
        reader = inside(table, memory, release)  # the child gets the table locked
    else:
        table, tiers = opened(tier, place)
    child = os.fork()
    if child == 0:
        in_child(table, plain, tiers, tier)
    done, status = 0, 0
    deadline = time.monotonic() + 60
    while done == 0 and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if done == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    found: dict[str, Any] = {"pid": os.getpid(), "child": os.waitstatus_to_exitcode(status)}
    found["child ended"] = done == child
    release.set()
    if tier == "python":
        reader.join()
        found["closed"] = tiers[0].closed
    if tier == "ssd":
        try:
            _native.SsdStore(place)
        except OSError as error:
            found["locked"] = error.errno
    found["rows"] = [table.size(), plain.size()]
    found["values"] = float(table.lookup(np.arange(200)).sum())
    _, ticket = table.lookup_train(np.arange(0, 40))
    table.accumulate(ticket, np.ones((40, 2), np.float32))
    table.apply(1.0)
    table.prefetch_wait(table.prefetch(np.arange(100, 140)))
    table.flush()
    table.close()
    print(json.dumps(found))


if __name__ == "__main__":
    assert sorted(CALLS) == public_names() and set(CALLS) > FIXED
    main()
