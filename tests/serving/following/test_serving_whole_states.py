# SPDX-License-Identifier: Apache-2.0
"""Threads that predict while a trainer writes deltas, is killed and goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec.serving import Predictor
from tests.serving.following.test_serving_chain import INPUTS
from tests.serving.serving_network import Marked, ids

pytestmark = pytest.mark.usefixtures("graph_mode")


def test_whole_states_through_the_end_of_a_trainer(tmp_path: Path, trainer, wait) -> None:
    root = tmp_path / "run"
    process = trainer(root, pause=0.03, fulls=7, keys=20_000)
    stop = threading.Event()
    failures: list[BaseException] = []
    seen: list[set[int]] = [set() for _ in range(4)]

    def ask(number: int) -> None:
        last = -1
        try:
            while not stop.is_set():
                rows = 1 + (len(seen[number]) * 7 + number) % 300
                (answer,), version = predictor.predict_versioned(ids(rows, first=number * 1000))
                assert answer.shape == (rows, 17)
                if version == 0:
                    continue  # rows are not made yet
                assert np.unique(answer).tolist() == [float(version)]
                assert version >= last
                last = version
                seen[number].add(version)
        except BaseException as error:
            failures.append(error)

    with Predictor(root, Marked, inputs=INPUTS, poll_seconds=0.02) as predictor:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            wait(lambda: failures or predictor.status().version >= 12)
            process.kill()
            process.wait()
            at = predictor.status().version
            time.sleep(0.3)
            process = trainer(root, pause=0.03, fulls=7, keys=20_000)
            wait(lambda: failures or predictor.status().version >= at + 12)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures, failures
        assert all(len(versions) >= 8 for versions in seen), [len(each) for each in seen]
        # A slow machine may be so far behind that a full checkpoint is nearer.
        assert predictor.status().deltas_applied >= 8


def test_whole_states_where_checkpoints_vanish_while_they_are_read(
    tmp_path: Path, trainer, wait
) -> None:
    root = tmp_path / "run"
    trainer(root, pause=0.01, fulls=1, keys=3000)
    with Predictor(root, Marked, inputs=INPUTS, poll_seconds=0.25) as predictor:
        last = -1

        def whole() -> bool:
            nonlocal last
            (answer,), version = predictor.predict_versioned(ids(100))
            assert version >= last
            assert version == 0 or np.unique(answer).tolist() == [float(version)]
            last = version
            status = predictor.status()
            assert status.error is None or "removed" in status.error, status.error
            return status.fulls_loaded >= 3

        wait(whole)
