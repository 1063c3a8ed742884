# SPDX-License-Identifier: Apache-2.0
"""FusedGraph and Sum in use: exported, without oneDNN, on several threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import get_num_threads, set_num_threads
from mindspore_rec.nn import MLP, FactorizationMachine, FusedGraph, NumberEmbedding, Sum
from tests.nn.fused_cells import MODES, GraphOf, close, rows_of, run, unfuse
from tests.support.nightly import examples

ROOT = Path(__file__).parents[2]
F, N, D = 3, 2, 10  # vectors of 10 floats fill no register


def net_of(batch_norm: bool = True, dropout: float = 0.0, training: bool = True) -> GraphOf:
    """Return the dense part of a DeepFM: the linear model's logit is one of the graph's terms."""
    ms.set_seed(5)
    deep = MLP((F * D, N * D), (21, 17), "relu", dropout, batch_norm, out_features=1)
    steps = {
        "scaled": (NumberEmbedding(N, D, 0.5), ("numbers",)),
        "linear": (nn.Dense(N, 1), ("numbers",)),
        "paired": (FactorizationMachine((F, N), D), ("vectors", "scaled")),
        "deep": (deep, ("vectors", "scaled")),
        "logit": (Sum(4), ("weights", "linear", "paired", "deep")),
    }
    return GraphOf({"weights": 1, "vectors": F * D, "numbers": N}, steps).set_train(training)


def inputs_of(batch: int) -> list[np.ndarray]:
    return [rows_of(batch, 1, seed=3), rows_of(batch, F, D), rows_of(batch, N, seed=1)]


@examples(3, 15)
@given(
    dropout=st.sampled_from([0.0, 0.3]),
    batch_norm=st.booleans(),
    batch=st.sampled_from([5, 33, 300]),  # of 2 normalized rows all gradients cancel
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
def test_a_sum_of_branches_is_that_of_the_layers(dropout, batch_norm, batch, mode, training):
    ms.set_context(mode=mode, pynative_synchronize=True)
    fused, plain = (net_of(batch_norm, dropout, training) for _ in range(2))
    assert fused.is_fused
    weights = [rows_of(batch, 1, seed=2)]
    got = run(fused, inputs_of(batch), weights)
    expected = run(unfuse(plain), inputs_of(batch), weights)
    close(got[0], expected[0], 3e-5)
    close(got[1], expected[1], 1e-4)


@pytest.mark.parametrize("batch", [33, 2100])
def test_threads_change_no_bit(mode, batch):
    before = get_num_threads()
    found: list[Any] = []
    try:
        for threads in (1, 2, 7):
            set_num_threads(threads)
            net = net_of(dropout=0.3)
            outputs, gradients = run(net, inputs_of(batch), [rows_of(batch, 1, seed=2)])
            state = [p.asnumpy() for p in net.get_parameters()]
            found.append([*outputs, *gradients, *state])
    finally:
        set_num_threads(before)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("file_format", ["ONNX", "MINDIR"])
def test_an_exported_graph_has_ordinary_layers(graph_mode, tmp_path: Path, file_format):
    net = net_of(dropout=0.3, training=False)
    inputs = [Tensor(each) for each in inputs_of(5)]
    ms.export(net, *inputs, file_name=str(tmp_path / "net"), file_format=file_format)
    [written] = tmp_path.glob("net.*")
    content = written.read_bytes()
    assert b"MsrDense" not in content
    assert any(product in content for product in (b"MatMul", b"Gemm"))
    if file_format == "MINDIR":
        loaded = nn.GraphCell(ms.load(str(written)))
        expected = net(*inputs).asnumpy()
        np.testing.assert_allclose(loaded(*inputs).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert net.is_fused


PROGRAM = """
import json
import mindspore as ms
from mindspore import Tensor
from tests.nn.test_nn_fused_graph_use import inputs_of, net_of
from tests.nn.fused_cells import rows_of, run
ms.set_context(mode=ms.PYNATIVE_MODE)
net = net_of(dropout=0.3)
outputs, gradients = run(net, inputs_of(33), [rows_of(33, 1, seed=2)])
print(json.dumps({"fused": net.is_fused, "found": [a.tolist() for a in outputs + gradients]}))
"""


def test_without_onednn_a_graph_is_mindspores_layers():
    given_ = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3", "MINDSPORE_REC_ONEDNN": "off"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given_, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["fused"] is False
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    outputs, gradients = run(net_of(dropout=0.3), inputs_of(33), [rows_of(33, 1, seed=2)])
    close([np.array(a) for a in found["found"]], outputs + gradients, 1e-4)


@pytest.mark.parametrize("inputs, width", [(1, 1), (2, 3), (5, 1)])
def test_a_sum_alone(mode, inputs, width):
    given_ = [rows_of(7, width, seed=k) for k in range(inputs)]
    got = run(Sum(inputs, width), given_, [rows_of(7, width, seed=9)])
    expected = given_[0]
    for each in given_[1:]:
        expected = expected + each
    np.testing.assert_array_equal(got[0][0], expected)
    for gradient in got[1]:
        np.testing.assert_array_equal(gradient, rows_of(7, width, seed=9))


def test_bad_arguments_of_a_sum_are_refused():
    with pytest.raises(ValueError, match="inputs"):
        Sum(0)
    with pytest.raises(ValueError, match="width"):
        Sum(2, 0)
    with pytest.raises(TypeError, match="must be given 2 inputs"):
        Sum(2)(Tensor(rows_of(2, 1)))
    with pytest.raises(ValueError, match=r"must read inputs of widths \(1, 1\), got \(1, 2\)"):
        FusedGraph({"x": 1, "y": 2}, {"sum": (Sum(2), ("x", "y"))})
