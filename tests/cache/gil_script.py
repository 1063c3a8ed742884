# SPDX-License-Identifier: Apache-2.0
"""Calls each public name of the native Table while another thread is inside the table.

That thread is in the table's tier, a Python object, and needs the interpreter to come out. A call
that keeps the interpreter's lock while it waits for the table never ends, so this process says each
name before and after the call. Without names on the command line it calls all of them.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time

import numpy as np

from mindspore_rec import _native
from tests.cache import native_calls


def call_beside(name: str) -> None:
    table, tier = native_calls.small_table(f"gil {name}")
    release, begun = threading.Event(), threading.Event()
    reader = native_calls.inside(table, tier, release)

    def call() -> None:
        begun.set()
        try:
            native_calls.CALLS[name](table)
        except (RuntimeError, ValueError):
            pass  # refused, after it had the table

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    begun.wait()
    time.sleep(0.01)  # it waits for the table by now
    release.set()
    caller.join()
    reader.join()
    table.close()


def drop_beside() -> None:
    """The last reference to a table goes while its prefetch thread is inside the tier."""
    table, tier = native_calls.small_table("gil drop")
    entered, release = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        release.wait()

    tier.before_read = wait
    table.prefetch(np.arange(0, 40))
    entered.wait()
    threading.Timer(0.01, release.set).start()
    close = table.close
    del table
    close()
    del close
    assert tier.closed == 1


def main() -> None:
    for name in sys.argv[1:] or [*native_calls.public_names(), "(drop)"]:
        faulthandler.dump_traceback_later(60, exit=True)  # needs no lock of the interpreter
        print("calling", name, flush=True)
        if name == "(drop)":
            drop_beside()
        else:
            call_beside(name)
        print("called", name, flush=True)
    assert _native.get_num_threads() >= 1


if __name__ == "__main__":
    main()
