# SPDX-License-Identifier: Apache-2.0
"""The lock that goes to whoever asked first."""

from __future__ import annotations

import threading
import time

from mindspore_rec.graph.lock import graph_lock
from mindspore_rec.serving.fair_lock import FairLock


def test_in_the_order_of_asking() -> None:
    lock, order = FairLock(), []
    stop = threading.Event()

    def hog() -> None:
        while not stop.is_set():
            with lock:
                order.append(-1)
                time.sleep(0.002)

    def ask(number: int) -> None:
        with lock:
            order.append(number)

    hogs = [threading.Thread(target=hog) for _ in range(3)]
    askers = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in hogs:
        thread.start()
    places = []
    for thread in askers:
        places.append(len(order))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    stop.set()
    for thread in hogs:
        thread.join()
    # Whoever is in before and the three that wait already, and one that came in between.
    assert all(order.index(number) - place <= 5 for number, place in enumerate(places))


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
