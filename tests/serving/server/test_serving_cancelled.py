# SPDX-License-Identifier: Apache-2.0
"""Requests that are given up at any moment, and calls that fail, touch no other request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec.serve.server.batcher import Batcher
from mindspore_rec.serve.server.http import Front
from mindspore_rec.serving import Predictor
from mindspore_rec.train.graph.lock import graph_lock
from tests.serving.serving_network import FIELDS, UNKNOWN, Marked
from tests.support.asgi_client import ask
from tests.support.waiting import wait_until

INPUTS = [f"ids:INT64:-1,{FIELDS}"]


@pytest.fixture(scope="module")
def predictor(trained: Path) -> Iterator[Predictor]:
    ms.set_context(mode=ms.GRAPH_MODE)
    with Predictor(trained, Marked, inputs=INPUTS, follow=False) as made:
        yield made


@pytest.fixture
def batcher(predictor: Predictor) -> Iterator[Batcher]:
    made = Batcher(predictor, 64)
    yield made
    made.close()


def request(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys, of which one row is unknown, and the answer."""
    keys = (number + np.arange(rows * FIELDS)).reshape(rows, FIELDS) % 40
    keys[number % rows] = -1 - number
    expected = np.full((rows, 17), 6.0, np.float32)
    expected[number % rows] = [UNKNOWN] * 12 + [0.5] * 3 + [6, 6]
    return keys, expected


def test_cancelled_while_it_waits(batcher: Batcher) -> None:
    asked = [request(number, 1 + number % 3) for number in range(9)]
    with graph_lock:  # nobody is answered meanwhile
        futures = [batcher.submit([asked[0][0]])]
        while not futures[0].running():  # with the network, which waits for the lock
            time.sleep(0.001)
        futures += [batcher.submit([keys]) for keys, _ in asked[1:]]
        cancelled = [future.cancel() for future in futures]
        assert cancelled == [False] + [True] * 8
        last = batcher.submit([asked[0][0]])
    np.testing.assert_array_equal(futures[0].result(30)[0][0], asked[0][1])
    np.testing.assert_array_equal(last.result(30)[0][0], asked[0][1])


def test_many_cancelled_at_random(batcher: Batcher) -> None:
    stop = threading.Event()
    failures: list[Any] = []
    answered = [0] * 4

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            while not stop.is_set():
                some: list[tuple[Future[Any], np.ndarray]] = []
                for _ in range(int(rng.integers(1, 9))):
                    keys, expected = request(int(rng.integers(1000)), int(rng.integers(1, 40)))
                    some.append((batcher.submit([keys]), expected))
                given_up = [future.cancel() for future, _ in some if rng.random() < 0.5]
                time.sleep(rng.random() * 0.002)
                given_up += [future.cancel() for future, _ in some if rng.random() < 0.3]
                for future, expected in some:
                    if not future.cancelled():
                        outputs, version = future.result(30)
                        np.testing.assert_array_equal(outputs[0], expected)
                        assert version == 6
                        answered[seed] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    try:
        wait_until(lambda: failures or min(answered) > 20, 120)
    finally:
        stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


def test_clients_that_go_away(predictor: Predictor) -> None:
    """Tasks of the server are cancelled, from reading to answering, among others that stay."""
    front = Front("model", 64)
    front.open(predictor)

    async def one(number: int) -> None:
        keys, expected = request(number, 1 + number % 30)
        given = {"name": "ids", "datatype": "INT64", "shape": keys.shape, "data": keys.tolist()}
        text = json.dumps({"inputs": [given]}).encode()
        status, found = await ask(front.app, [text[:9], text[9:]])
        assert status == 200, found
        answer = np.array(found["outputs"][0]["data"], np.float32)
        np.testing.assert_array_equal(answer.reshape(expected.shape), expected)

    async def all_of_them() -> int:
        rng = np.random.default_rng(0)
        given_up = 0
        for _ in range(40):
            tasks = [asyncio.create_task(one(int(rng.integers(1000)))) for _ in range(20)]
            stay = set(rng.choice(20, 5, replace=False).tolist())
            for i, task in enumerate(tasks):
                if i not in stay:
                    asyncio.get_running_loop().call_later(rng.random() * 0.01, task.cancel)
            found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
            for i, each in enumerate(found):
                cancelled = isinstance(each, asyncio.CancelledError)
                given_up += cancelled
                assert each is None or (cancelled and i not in stay), each
        return given_up

    assert asyncio.run(all_of_them()) > 50
    assert front.held.bytes == 0
    front.models.find("model").batcher.close()


class Failing:
    """A predictor whose call fails for some of the requests."""

    def __init__(self, real: Predictor, bad: int, error: BaseException | None) -> None:
        self.real, self.bad, self.error = real, bad, error
        self.inputs, self.outputs = real.inputs, real.outputs

    def predict_versioned(self, keys: np.ndarray) -> tuple[list[np.ndarray], int]:
        outputs, version = self.real.predict_versioned(keys)
        if (keys == self.bad).any():
            if self.error is None:
                return [output[:-1] for output in outputs], version
            raise self.error
        return outputs, version


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), MemoryError(), SystemExit(3), StopIteration(), None]
)
def test_a_call_that_fails(predictor: Predictor, error: BaseException | None) -> None:
    made = Batcher(Failing(predictor, 777_777, error), 64)
    asked = [request(number, 2) for number in range(6)]
    asked[3][0][0, 0] = 777_777

    async def wait() -> list[Any]:
        with graph_lock:
            futures = [asyncio.wrap_future(made.submit([keys])) for keys, _ in asked]
        return await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 30)

    for _ in range(2):
        found = asyncio.run(wait())
        for i in (0, 1, 2, 4, 5):
            np.testing.assert_array_equal(found[i][0][0], asked[i][1])
        if error is not None:
            assert isinstance(found[3], Exception)
    made.close()
