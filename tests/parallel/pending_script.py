# SPDX-License-Identifier: Apache-2.0
"""Asks for lookups in PyNative mode, which runs them behind the program, and ends at once."""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec import HashEmbeddingLookup, TableConfig
from mindspore_rec.parallel import worker_group


def main() -> None:
    group = worker_group()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    lookup = HashEmbeddingLookup(config=TableConfig(4, name="pending", initializer=2.0))
    lookup.set_train(False)
    ids = Tensor(np.arange(200_000).reshape(-1, 4))
    lookup(ids).asnumpy()
    group.barrier()
    found = [lookup(ids) for _ in range(30)]
    if sys.argv[1] == "finish":
        group.finish()
        assert all((each.asnumpy() == 2).all() for each in found)
    print("asked", flush=True)


if __name__ == "__main__":
    main()
