# SPDX-License-Identifier: Apache-2.0
"""Predictors of a run whose files another program truncates and writes again, in place.

As a program, this file does that for a number of seconds: the process must not end by a signal.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from mindspore_rec.serving import ChainError, Predictor
from tests.serving.serving_network import FIELDS, Marked, train
from tests.support.nightly import NIGHTLY
from tests.support.processes import run_python

KEYS = 150_000
STEPS = 4


def test_predictors_survive_files_that_are_truncated_while_they_read() -> None:
    starts, answers, truncated = run_python(
        "-m", "tests.serving.following.test_serving_truncated", "60" if NIGHTLY else "6"
    ).split()
    assert int(starts) > 1 and int(answers) > 1 and int(truncated) > 100


def truncate(root: Path, done: threading.Event, counts: list[int]) -> None:
    """Truncate a file at random, and write it again after some milliseconds."""
    rng = random.Random(3)
    while not done.is_set():
        file = rng.choice([each for each in root.glob("*/*") if each.is_file()])
        data = file.read_bytes()
        os.truncate(file, rng.randrange(len(data) + 1))
        time.sleep(rng.random() * 0.01)
        with open(file, "r+b") as opened:
            opened.write(data)
        counts.append(len(data))


def main(seconds: float) -> None:
    """Start predictors for some seconds; print the starts, the answers and the truncations."""
    root = Path(tempfile.mkdtemp()) / "run"
    train(root, STEPS, keys=KEYS, close=False, every_steps=100, delta_every_steps=1)
    done, truncated = threading.Event(), list[int]()
    thread = threading.Thread(target=truncate, args=(root, done, truncated))
    thread.start()
    end, ids = time.monotonic() + seconds, np.arange(FIELDS)[None]
    starts = answers = 0
    try:
        while time.monotonic() < end:
            starts += 1
            try:
                with Predictor(
                    root, Marked, inputs=[f"ids:INT64:-1,{FIELDS}"], poll_seconds=0.01
                ) as predictor:
                    for _ in range(5):
                        (answer,), step = predictor.predict_versioned(ids)
                        assert step == 0 or set(answer.ravel()) == {step}, (step, answer)
                        answers += 1
                        time.sleep(0.05)
            except ChainError as error:
                assert "is damaged" in str(error), error
    finally:
        done.set()
        thread.join()
    print(starts, answers, len(truncated))


if __name__ == "__main__":
    main(float(sys.argv[1]))
