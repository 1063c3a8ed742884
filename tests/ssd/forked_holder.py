# SPDX-License-Identifier: Apache-2.0
"""A process that takes something, forks as a data loader does, and is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _wait_for_ever() -> None:
    while True:
        time.sleep(60)


@contextmanager
def killed_beside_its_child(take: Callable[[], object]) -> Iterator[None]:
    """Runs `take` in a process that is killed then, with a forked child of it alive meanwhile."""
    there, said = os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            taken = take()
            child = os.fork()
            if child:
                os.write(said, child.to_bytes(8, "little"))
            _wait_for_ever()
            del taken
        finally:
            os._exit(1)
    os.close(said)
    with open(there, "rb") as pipe:
        child = int.from_bytes(pipe.read(8), "little")
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert child, "the process ended by itself"
    try:
        os.kill(child, 0)  # it is alive
        yield
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
