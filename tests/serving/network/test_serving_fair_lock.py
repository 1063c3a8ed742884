# SPDX-License-Identifier: Apache-2.0
"""The lock that goes to whoever asked first."""

from __future__ import annotations

import threading
import time

from mindspore_rec.train.export.fair_lock import FairLock
from mindspore_rec.train.graph.lock import graph_lock


def test_in_the_order_of_asking() -> None:
    """Those who ask again at once come behind all who wait."""
    lock, order = FairLock(), []

    def ask(number: int) -> None:
        for _ in range(3):
            with lock:
                order.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    with lock:
        for number, thread in enumerate(threads):
            thread.start()
            while len(lock._waiting) <= number:  # it has asked
                time.sleep(0.0001)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert order[:20] == list(range(20))
    assert sorted(order) == sorted(3 * list(range(20)))


def test_one_at_a_time() -> None:
    lock, inside, worst = FairLock(), [0], [0]

    def work() -> None:
        for i in range(300):
            with lock:
                inside[0] += 1
                worst[0] = max(worst[0], inside[0])
                if i % 3 == 0:
                    with lock:  # again, by the same thread
                        time.sleep(0)
                inside[0] -= 1
            if i % 7 == 0:
                with graph_lock, lock:
                    time.sleep(0)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert worst == [1] and inside == [0]
