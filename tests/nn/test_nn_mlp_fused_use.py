# SPDX-License-Identifier: Apache-2.0
"""The fused MLP inside nets, train steps, checkpoints, copies and processes."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec.nn import MLP
from tests.nn.fused_cells import unfuse
from tests.nn.mlp_pair import assert_same, gradients, mlps, numbers
from tests.support.networks import MeanSquare


class Twice(nn.Cell):
    """One MLP used twice, beside another one."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = MLP(4, (6,), "tanh", out_features=4)
        self.other = MLP((4, 4), (5,), out_features=2)
        self.out_features = 2

    def construct(self, x: Tensor) -> Any:
        """Return the output of the other MLP."""
        once = self.shared(x)
        return self.other(self.shared(once), once)


def two_nets() -> tuple[Twice, Twice]:
    made = []
    for _ in range(2):
        ms.set_seed(4)
        made.append(Twice())
    for mlp in (made[1].shared, made[1].other):
        unfuse(mlp)
    return made[0], made[1]


def test_one_mlp_twice_and_two_in_one_net(mode):
    fused, plain = two_nets()
    x = numbers(20, 4)
    got, expected = gradients(fused, [x]), gradients(plain, [x])
    assert_same(got[0], expected[0])
    for g, e in zip(got[1], expected[1], strict=True):
        assert_same(g, e)


def test_a_train_step(mode):
    losses, finals = [], []
    for net in two_nets():
        parameters = net.trainable_params()
        step = nn.TrainOneStepCell(MeanSquare(net), nn.Adam(parameters, 0.01)).set_train()
        losses.append([float(step(numbers(30, 4, seed=i)).asnumpy()) for i in range(5)])
        finals.append([p.asnumpy() for p in parameters])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    for got, expected in zip(*finals, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-4)


def test_a_function_under_jit(pynative):
    fused, plain = mlps(4, (6,), "tanh", out_features=2)
    x = numbers(20, 4)

    def run(mlp: MLP) -> list[Any]:
        def loss(x: Tensor) -> Any:
            return (mlp(x) ** 2).sum()

        function = ms.value_and_grad(loss, 0, mlp.trainable_params())

        @ms.jit
        def compiled(x: Tensor) -> Any:
            return function(x)

        value, (dx, of_parameters) = compiled(x)
        return [value.asnumpy(), dx.asnumpy(), *(g.asnumpy() for g in of_parameters)]

    for got, expected in zip(run(fused), run(plain), strict=True):
        assert_same(got, expected)


def test_dynamic_batch(graph_mode):
    fused, plain = two_nets()
    steps = []
    for net in (fused, plain):
        step = nn.TrainOneStepCell(MeanSquare(net), nn.SGD(net.trainable_params(), 0.1)).set_train()
        step.set_inputs(Tensor(shape=(None, 4), dtype=ms.float32))
        steps.append(step)
    for i, rows in enumerate((3, 300, 1, 17, 3)):
        got, expected = (float(step(numbers(rows, 4, seed=i)).asnumpy()) for step in steps)
        assert got == pytest.approx(expected, rel=1e-4)
    fused.set_inputs(Tensor(shape=(None, 4), dtype=ms.float32))
    assert fused(numbers(0, 4)).shape == (0, 2)


@pytest.mark.parametrize("constant", ["input", "all"])
def test_nothing_runs_while_a_graph_is_compiled(graph_mode, constant):
    class Constant(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = MLP(4, (3,))
            self.x = numbers(2, 5)  # one column too many: the operator refuses it
            if constant == "all":
                for p in self.mlp.get_parameters():
                    p.requires_grad = False

        def construct(self) -> Any:
            return self.mlp(self.x) + 1

    net = Constant()
    net.compile()
    with pytest.raises(RuntimeError, match=r"input 0 must be \[2, 4\]"):
        net()


def test_a_copy_is_a_net_of_its_own(mode):
    fused, _ = mlps(4, (6,), "tanh", out_features=2)
    x = numbers(5, 4)
    before = fused(x).asnumpy()
    twin = copy.deepcopy(fused)
    assert twin.is_fused
    np.testing.assert_array_equal(twin(x).asnumpy(), before)
    for p in twin.trainable_params():
        p.set_data(ops.zeros_like(p))
    assert not twin(x).asnumpy().any()
    np.testing.assert_array_equal(fused(x).asnumpy(), before)
    del fused
    assert len(gradients(twin, [x])[1]) == 5


def test_parameters_and_checkpoints_are_those_of_the_layers(mode, tmp_path):
    fused, plain = mlps(4, (6, 3), "relu", 0.2, out_features=2, training=False)
    assert list(fused.parameters_dict()) == list(plain.parameters_dict())
    x = numbers(5, 4)
    expected = plain(x).asnumpy()
    for p in plain.trainable_params():
        p.set_data(p * 2)
    for source, target in ((plain, fused), (fused, plain)):
        path = str(tmp_path / "mlp.ckpt")
        ms.save_checkpoint(source, path)
        missing = ms.load_param_into_net(target, ms.load_checkpoint(path))
        assert missing == ([], [])
        doubled = target(x).asnumpy()
        assert not np.allclose(doubled, expected)
        np.testing.assert_allclose(doubled, source(x).asnumpy(), rtol=1e-4, atol=1e-5)


def test_a_parameter_of_another_size_is_refused(pynative):
    mlp = MLP(4, (3,))
    mlp.layers[0].weight.set_data(Tensor(np.ones((1, 4), np.float32)), slice_shape=True)
    with pytest.raises(RuntimeError, match="parameter 0 must have 12 elements"):
        mlp(numbers(2, 4))


SCRIPT = """
    import os, sys
    import mindspore as ms, numpy as np
    from mindspore import Tensor
    from mindspore_rec.nn import MLP

    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    x = Tensor(np.ones((300, 4), np.float32))
    mlp = MLP(4, (300,), "tanh", out_features=2)
    before = mlp(x).asnumpy()
"""

FORK = """
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)  # MindSpore aborts there, after our part, for it joins its threads
    ms.set_context(mode=ms.GRAPH_MODE)
    np.testing.assert_allclose(mlp(x).asnumpy(), before, rtol=1e-5)  # compiles the graph now
    assert MLP(4, (3, 3), out_features=1)(x).shape == (300, 1)
"""


@pytest.mark.parametrize("then", ["", FORK], ids=["ends", "forks"])
def test_a_process_leaves_nothing_behind(then, tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT) + textwrap.dedent(then)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=200,
    )
    assert found.returncode == 0, found.stderr
    assert not list(tmp_path.glob("mindspore_rec_*"))
