# SPDX-License-Identifier: Apache-2.0
"""Networks as functions: sizes, outputs, errors of an operator, requests that go together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import EmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.serve.server.batcher import Batcher, BusyError
from mindspore_rec.serving import Predictor, TensorSpec
from mindspore_rec.train.graph.lock import graph_lock

INPUTS = ["ids:INT64:-1,2", "scale:FP32:-1,1", "flip:BOOL:-1,1"]
WIDE = 3


class Vocabulary(nn.Cell):
    """Two outputs of three inputs; ids outside 0 .. 9 are an error of an operator."""

    def __init__(self, name: str = "serving.vocabulary") -> None:
        super().__init__()
        self.rows = EmbeddingLookup(10, WIDE, "ones", name=name)

    def construct(self, ids: Tensor, scale: Tensor, flip: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.rows(ids).sum(1) * scale
        return ops.select(ops.broadcast_to(flip, rows.shape), -rows, rows), rows.sum(1)


class Loss(nn.Cell):
    def construct(self, outputs: Any, label: Tensor) -> Tensor:
        return ((outputs[1] - label) ** 2).sum()


def batch(rows: int, first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    numbers = np.arange(first, first + rows)
    ids = np.stack([numbers % 10, (numbers * 3) % 10], 1).astype(np.int64)
    return ids, (numbers[:, None] / 8).astype(np.float32), numbers[:, None] % 2 == 0


def model_of(name: str) -> tuple[Vocabulary, RecModel]:
    net = Vocabulary(name)
    return net, RecModel(net, Loss(), LazyAdam(net.trainable_params(), learning_rate=0.1))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[..., Any]]:
    """A trained run, and what its model said of inputs."""
    ms.set_context(mode=ms.GRAPH_MODE)
    root = tmp_path_factory.mktemp("vocabulary") / "run"
    net, model = model_of("serving.vocabulary")
    steps = [(*batch(16, i), np.ones(16, np.float32)) for i in range(5)]
    model.online_train(steps, RecCheckpoint(root, every_steps=9), progress=False)
    rows = net.rows.embedding_table.asnumpy()
    net.rows.embedding_table.close()

    def expected(ids: np.ndarray, scale: np.ndarray, flip: np.ndarray) -> list[np.ndarray]:
        summed = rows[ids].sum(1) * scale
        return [np.where(flip, -summed, summed), summed.sum(1)]

    return root, expected


@pytest.fixture
def predictor(saved: tuple[Path, Any], mode: str) -> Iterator[Predictor]:
    with Predictor(saved[0], Vocabulary, inputs=INPUTS, follow=False) as opened:
        yield opened


def check(found: Any, expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_outputs_and_sizes(predictor: Predictor, saved: tuple[Path, Any]) -> None:
    assert predictor.outputs == (
        TensorSpec("output_0", "FP32", (-1, WIDE)),
        TensorSpec("output_1", "FP32", (-1,)),
    )
    for rows in (1, 7, 2, 100, 33, 1):
        check(predictor.predict(*batch(rows)), saved[1](*batch(rows)))


def test_answers_on_after_an_error_of_an_operator(
    predictor: Predictor, saved: tuple[Path, Any]
) -> None:
    for _ in range(2):
        ids, scale, flip = batch(4)
        ids[2, 1] = 10
        with pytest.raises(RuntimeError, match=r"id 10 at position 5 is outside the vocabulary"):
            predictor.predict(ids, scale, flip)
        check(predictor.predict(*batch(5)), saved[1](*batch(5)))


def test_inputs_that_set_inputs_describes(saved: tuple[Path, Any], graph_mode: None) -> None:
    def network() -> nn.Cell:
        net = Vocabulary()
        net.set_inputs(
            Tensor(shape=[None, 2], dtype=ms.int64),
            Tensor(shape=[None, 1], dtype=ms.float32),
            Tensor(shape=[None, 1], dtype=ms.bool_),
        )
        return net

    with Predictor(saved[0], network, follow=False) as predictor:
        assert predictor.inputs == tuple(TensorSpec.parse(each) for each in INPUTS)
        check(predictor.predict(*batch(3)), saved[1](*batch(3)))


def test_inputs_that_nobody_describes(saved: tuple[Path, Any], graph_mode: None) -> None:
    with Predictor(saved[0], Vocabulary, follow=False) as predictor:
        assert predictor.inputs is None and predictor.outputs is None
        for rows in (4, 2, 3, 5, 6):
            inputs = [Tensor(each) for each in batch(rows)]
            check(predictor.predict(*inputs), saved[1](*batch(rows)))


@pytest.mark.parametrize("most", [1000, 5, 0])
def test_requests_that_wait_go_together(
    saved: tuple[Path, Any], graph_mode: None, most: int
) -> None:
    with Predictor(saved[0], Vocabulary, inputs=INPUTS, follow=False) as predictor:
        batcher = Batcher(predictor, most)
        sizes = [1, 3, 2, 7, 1, 1, 4]
        asked = [batch(rows, 5 * i) for i, rows in enumerate(sizes)]
        with graph_lock:  # nobody is answered meanwhile
            futures = [batcher.submit(list(one)) for one in asked]
        for one, future in zip(asked, futures, strict=True):
            outputs, version = future.result(30)
            check(outputs, saved[1](*one))
            assert version == 5
        batcher.close()
        with pytest.raises(BusyError):
            batcher.submit(list(asked[0]))


def test_one_bad_request_among_others(saved: tuple[Path, Any], graph_mode: None) -> None:
    with Predictor(saved[0], Vocabulary, inputs=INPUTS, follow=False) as predictor:
        batcher = Batcher(predictor)
        asked = [batch(2, i) for i in range(4)]
        asked[2][0][0, 0] = -1
        with graph_lock:
            futures: list[Future[Any]] = [batcher.submit(list(one)) for one in asked]
        for i in (0, 1, 3):
            check(futures[i].result(60)[0], saved[1](*asked[i]))
        with pytest.raises(RuntimeError, match="id -1"):
            futures[2].result(60)
        with pytest.raises(ValueError, match="same first dimension"):
            batcher.submit([*batch(2)[:2], batch(3)[2]])
        batcher.close()


def test_many_threads(saved: tuple[Path, Any], graph_mode: None) -> None:
    failures: list[BaseException] = []
    with Predictor(saved[0], Vocabulary, inputs=INPUTS) as predictor:

        def ask(number: int) -> None:
            try:
                for i in range(50):
                    one = batch(1 + (i * number) % 9, number)
                    check(predictor.predict(*one), saved[1](*one))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for i in range(20):
            with graph_lock:  # as whoever calls cells has it
                check(predictor.predict(*batch(3, i)), saved[1](*batch(3, i)))
        for thread in threads:
            thread.join()
    assert not failures
