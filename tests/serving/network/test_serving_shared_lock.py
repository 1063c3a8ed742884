# SPDX-License-Identifier: Apache-2.0
"""The lock of readers and writers: together, alone, and nobody waits for ever."""

from __future__ import annotations

import threading
import time

from mindspore_rec.common.network.shared_lock import SharedLock
from tests.support.waiting import wait_until


def test_shared_lock_keeps_writers_alone() -> None:
    lock, readers, wrong = SharedLock(), [0], []
    held, stop = threading.Lock(), threading.Event()
    together = [0]

    def read() -> None:
        while not stop.is_set():
            with lock.reading():
                with held:
                    readers[0] += 1
                    together[0] = max(together[0], readers[0])
                time.sleep(0.0005)
                with held:
                    readers[0] -= 1

    def write() -> None:
        while not stop.is_set():
            with lock.writing():
                if readers[0]:
                    wrong.append(readers[0])
                time.sleep(0.0002)
                if readers[0]:
                    wrong.append(readers[0])

    threads = [threading.Thread(target=work) for work in (read, read, read, write, write)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        wait_until(lambda: together[0] >= 2, 60)
    finally:
        stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong


def test_shared_lock_lets_a_writer_in_among_readers() -> None:
    """Readers that follow one another without a gap do not keep a writer out."""
    lock, stop = SharedLock(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            with lock.reading():
                time.sleep(0.01)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        begin = time.monotonic()
        for _ in range(10):
            with lock.writing():
                pass
        assert time.monotonic() - begin < 60
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def test_shared_lock_is_free_after_an_error() -> None:
    lock = SharedLock()
    for held in (lock.reading, lock.writing):
        try:
            with held():
                raise KeyError("inside")
        except KeyError:
            pass
    with lock.writing():
        pass
