# SPDX-License-Identifier: Apache-2.0
"""Ends while the thread that writes rows down is in a tier that is a Python object.

`python -m tests.cache.exit_script CASE` puts rows into a table, and ends as soon as the thread is
in the tier's `write`. In the case "slow", a write takes 0.3 seconds. In the case "many", writes are
short, and many are queued. In the case "dropped", nothing holds the table when Python ends. In the
case "flushed", a function that is registered with `atexit` flushes the table.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time

import numpy as np


def say(text: str) -> None:
    """Write a line at once: what Python keeps in its buffers may be lost when it ends."""
    os.write(1, f"{text}\n".encode())


def last() -> None:
    """Registered before the core's own function, so Python calls it later."""
    say("closed")
    time.sleep(0.1)  # a thread that may still enter Python does so now
    say("end")


atexit.register(last)

from tests.cache.native_calls import MemoryTier, small_table  # noqa: E402

ENTERED = threading.Event()
KEPT: list[object] = []


def main() -> None:
    case = sys.argv[1]
    table, tier = small_table(f"exit {case}")
    seconds = 0.3 if case == "slow" else 0.002

    def write(keys: np.ndarray, rows: np.ndarray) -> None:
        say("write")
        ENTERED.set()
        time.sleep(seconds)
        MemoryTier.write(tier, keys, rows)
        say("written")

    tier.write = write  # type: ignore[method-assign]
    for i in range(1 if case == "slow" else 40):
        table.put(np.arange(1000 + 40 * i, 1040 + 40 * i), np.ones((40, 2), np.float32))
    assert ENTERED.wait(20)
    if case == "flushed":
        atexit.register(table.flush)
    if case != "dropped":
        KEPT.append(table)


if __name__ == "__main__":
    main()
