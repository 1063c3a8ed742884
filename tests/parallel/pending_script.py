# SPDX-License-Identifier: Apache-2.0
"""Ends while something is still exchanged that the program does not wait for.

Usage: pending_script.py finish|exit|thread. With the first two, lookups in PyNative mode, which
runs them behind the program; the last, a thread.
"""

from __future__ import annotations

import sys
import threading

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec import HashEmbeddingLookup, TableConfig
from mindspore_rec.parallel import WorkerError, worker_group


def look_up(finish: bool) -> None:
    """Ask for lookups, and end before the last of them are done."""
    group = worker_group()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    lookup = HashEmbeddingLookup(config=TableConfig(4, name="pending", initializer=2.0))
    lookup.set_train(False)
    ids = Tensor(np.arange(200_000).reshape(-1, 4))
    lookup(ids).asnumpy()
    group.barrier()
    found = [lookup(ids) for _ in range(10)]
    if finish:
        group.finish()
        assert all((each.asnumpy() == 2).all() for each in found)


def exchange() -> None:
    """Finish while a thread exchanges without an end."""
    group = worker_group()
    channel = group.channel("ahead")
    said: list[str] = []

    def work() -> None:
        try:
            while True:
                channel.all_gather(b"x" * 20_000_000)
        except WorkerError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    group.barrier()
    group.finish()
    thread.join()
    assert "the workers have ended" in said[0], said


if __name__ == "__main__":
    if sys.argv[1] == "thread":
        exchange()
    else:
        look_up(sys.argv[1] == "finish")
    print("ended", flush=True)
