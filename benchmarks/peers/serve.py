# SPDX-License-Identifier: Apache-2.0
"""Worker process that runs training steps of another framework's network on command.

A worker's arguments are the directory of `settings.json` and `batches.npz` (which `peer_process.py`
writes), and a file descriptor for its answers. The worker does not answer on standard output,
because frameworks print there. The worker writes one line per answer. The first line describes the
worker in JSON. Then the worker reads the numbers of batches from standard input. For each number k,
the worker runs a step on batch k and writes the step's seconds. The worker imports only NumPy and
its framework.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Work:
    """Arguments of a worker.

    Args:
        fields, columns: number of ids, and number of numeric inputs, per sample.
        hidden: widths of the hidden layers.
        dim: floats per embedding.
        rows: number of ids in a table.
        threads: number of computing threads.
        precision: 'float32' or 'bfloat16', for the products.
        ranks: int64 [K, B, F], the ids, below `rows`.
        keys: int64 [K, B, F], a 63-bit key for each id in `ranks`.
        every: int64 [rows], the key of each id.
        dense: float32 [B, N].
        label: float32 [B, 1].
    """

    fields: int
    columns: int
    hidden: list[int]
    dim: int
    rows: int
    threads: int
    precision: str
    ranks: np.ndarray
    keys: np.ndarray
    every: np.ndarray
    dense: np.ndarray
    label: np.ndarray


def serve(
    make: Callable[[Any], tuple[dict[str, str], Callable[[int], float]]], kind: type = Work
) -> None:
    """Answer commands until standard input ends.

    Args:
        make: function that takes the worker's arguments, and returns a description of the peer
            (versions, optimizations) and the peer's step. The step is a function that takes the
            batch's number and returns the loss.
        kind: dataclass such as `Work`; the values of its fields are in `settings.json` and
            `batches.npz`. Default: `Work`.

    Raises:
        ArithmeticError: a loss is not finite.
    """
    directory = Path(sys.argv[1])
    settings: dict[str, Any] = json.loads((directory / "settings.json").read_text())
    with np.load(directory / "batches.npz") as arrays:
        work = kind(**settings, **arrays)
    answers = os.fdopen(int(sys.argv[2]), "w")
    about, step = make(work)
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        loss = step(int(line))
        seconds = time.perf_counter() - begin
        if not np.isfinite(loss):
            raise ArithmeticError(f"the loss is {loss}")
        print(repr(seconds), file=answers, flush=True)
