# SPDX-License-Identifier: Apache-2.0
"""Bits of an answer that depend on the rows beside it in ONNX Runtime (docs/following.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import HashEmbeddingLookup
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.network.onnx_runner import OnnxRunner
from mindspore_rec.nn import MLP
from mindspore_rec.serve.server.batcher import Batcher
from mindspore_rec.train.export.onnx import export_network
from tests.support.networks import LogitBeside

FIELDS, NUMBERS, ROWS = 6, 5, 96


@pytest.fixture(scope="module", params=[[], [16], [256, 64], [400, 400, 400]], ids=str)
def runner(request: Any) -> Iterator[OnnxRunner]:
    ms.set_context(mode=ms.GRAPH_MODE)
    lookup = HashEmbeddingLookup(8, ms.int64, name=f"bits.{len(request.param)}")
    mlp = MLP(FIELDS * 8 + NUMBERS, request.param, out_features=1)
    head = nn.SequentialCell(mlp, nn.Sigmoid())
    net = LogitBeside(lookup, FIELDS * 8, NUMBERS, head).set_train(False)
    specs = parsed_specs([f"ids:INT64:-1,{FIELDS}", f"numbers:FP32:-1,{NUMBERS}"])
    made = OnnxRunner(export_network(net, specs))
    rng = np.random.default_rng(3)
    keys = np.arange(500)
    (table,) = made.tables.values()
    table.write_rows(keys, rng.normal(size=(500, 8)).astype(np.float32))
    parameters = {each.name: each for each in made.parameters}
    values = [
        (each, rng.normal(size=each.shape).astype(np.float32) / max(each.shape[-1], 1) ** 0.5)
        for each in parameters.values()
    ]
    made.set_parameters(values)
    yield made
    made.close()
    lookup.embedding_table.close()


def inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    ids = rng.integers(0, 500, (ROWS, FIELDS))
    return ids, rng.normal(size=(ROWS, NUMBERS)).astype(np.float32)


def test_the_same_call_gives_the_same_bits_and_others_nearly(runner: OnnxRunner) -> None:
    ids, numbers = inputs()
    (together,) = runner(ids, numbers)
    np.testing.assert_array_equal(together, runner(ids, numbers)[0])
    assert np.ptp(together) > 0.01
    for rows in (1, 2, 3, 4, 5, 8, 13, 32, 64):
        for begin in range(0, ROWS, rows):
            part = slice(begin, begin + rows)
            (alone,) = runner(ids[part], numbers[part])
            np.testing.assert_allclose(alone, together[part], rtol=1e-5, atol=0)


def test_without_batches_a_request_has_always_the_same_bits(runner: OnnxRunner) -> None:
    """`--max-batch-rows 0`: whatever else is asked at the same time."""

    class Predicts:
        inputs, outputs = runner.inputs, runner.specs_of_outputs()

        @staticmethod
        def predict_versioned(*arrays: np.ndarray) -> tuple[list[np.ndarray], int]:
            return runner(*arrays), 1

    ids, numbers = inputs()
    expected = [runner(ids[i : i + 1], numbers[i : i + 1])[0] for i in range(ROWS)]
    batcher = Batcher(Predicts(), 0)
    asked = [batcher.submit([ids[i : i + 1], numbers[i : i + 1]]) for i in range(ROWS)]
    for future, row in zip(asked, expected, strict=True):
        np.testing.assert_array_equal(future.result()[0][0], row)
    batcher.close()
