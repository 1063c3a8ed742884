# SPDX-License-Identifier: Apache-2.0
"""A remote tier in a process that was forked while another thread was writing to it."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue

import numpy as np
import redis

from mindspore_rec.common.tiers.redis.link import RemoteError
from mindspore_rec.common.tiers.redis.tier import RedisTier

ROW = 16
KEYS = np.arange(3)


def calls(tier: RedisTier) -> dict[str, Callable[[], object]]:
    rows = np.zeros((3, ROW), np.uint8)
    return {
        "read": lambda: tier.read(KEYS, rows, np.zeros(3, bool)),
        "write": lambda: tier.write(KEYS, rows),
        "erase": lambda: tier.erase(KEYS),
        "flush": tier.flush,
        "size": tier.size,
        "scan": lambda: tier.scan(0, 10),
        "clear": tier.clear,
        "stats": tier.stats,
    }


def in_child(tier: RedisTier, results: SimpleQueue) -> None:
    for name, call in calls(tier).items():
        try:
            call()
            results.put((name, "no error"))
        except RemoteError as error:
            results.put((name, str(error)))
    tier.close()
    results.put(("close", ""))


def test_a_child_forked_beside_a_write_is_told(redis_url: str, unique: Callable[[], str]) -> None:
    name = unique()
    tier = RedisTier(redis_url, name, ROW)
    tier.write(KEYS, np.ones((3, ROW), np.uint8))
    server = redis.Redis.from_url(redis_url)
    server.client_pause(120_000, all=False)  # writes wait
    writer = threading.Thread(target=tier.write, args=(KEYS, np.full((3, ROW), 2, np.uint8)))
    writer.start()
    time.sleep(0.5)  # the server has the write by now
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=in_child, args=(tier, results))
    child.start()
    child.join(60)
    server.client_unpause()
    ended = child.exitcode
    if ended is None:
        child.kill()
        child.join()
    said = {}
    while not results.empty():
        call, text = results.get()
        said[call] = text
    assert ended == 0, said
    assert said.pop("close") == ""
    assert set(said) == set(calls(tier))
    for call, text in said.items():
        assert f"table '{name}'" in text and "forked" in text, (call, text)
    writer.join()
    rows, found = np.zeros((3, ROW), np.uint8), np.zeros(3, bool)
    tier.read(KEYS, rows, found)
    assert found.all() and (rows == 2).all()
    assert tier.size() == 3
    tier.clear()
    tier.close()
