# SPDX-License-Identifier: Apache-2.0
"""Learning rates, decays and loss scales in every form, alone and in groups."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.dataset import GeneratorDataset

from mindspore_rec import optim
from tests.support.networks import SumOf

STEPS = 4


FORMS: dict[str, Any] = {
    "number": (0.25, [0.25] * 4),
    "int": (1, [1.0] * 4),
    "numpy number": (np.float32(0.25), [0.25] * 4),
    "0-d": (Tensor(0.25, ms.float32), [0.25] * 4),
    "0-d float16": (Tensor(0.25, ms.float16), [0.25] * 4),
    "1-d": (Tensor([0.1, 0.2, 0.3, 0.4], ms.float32), [0.1, 0.2, 0.3, 0.4]),
    "array": (np.array([0.1, 0.2, 0.3, 0.4]), [0.1, 0.2, 0.3, 0.4]),
    "generator": ((0.1 * (i + 1) for i in range(4)), [0.1, 0.2, 0.3, 0.4]),
    "schedule": (nn.ExponentialDecayLR(0.1, 0.5, 2), [0.1, 0.1 * 0.5**0.5, 0.05, 0.05 * 0.5**0.5]),
}


@pytest.mark.parametrize("form", FORMS)
def test_learning_rate_forms(numpy_optim, form):
    given, rates = FORMS[form]
    optimizer = optim.LazyAdam(numpy_optim.LinearNet().trainable_params(), given)
    for step, rate in enumerate(rates):
        optimizer.global_step.set_data(Tensor([step], ms.int32))
        assert float(optimizer.get_lr().asnumpy()) == pytest.approx(rate)


def test_learning_rate_that_is_set_between_steps_is_seen(numpy_optim, mode):
    net = numpy_optim.LinearNet()
    optimizer = optim.SGD(net.trainable_params(), 0.1)
    model = numpy_optim.LinearModel(numpy_optim.sgd(), rates=lambda name, t: [0.1, 0.01][t])
    train, rng = numpy_optim.train_cell(net, optimizer), np.random.default_rng(0)
    for rate in (None, 0.01):
        if rate is not None:
            optimizer.learning_rate.set_data(Tensor(rate, ms.float32))
        batch = numpy_optim.random_batch(rng)
        train(*batch)
        model.step(batch)
    model.check(net)


@pytest.mark.usefixtures("graph_mode")
def test_model_trains_tables_and_dense_parameters(numpy_optim):
    net, rng = numpy_optim.LinearNet(), np.random.default_rng(6)
    batches = [numpy_optim.random_batch(rng) for _ in range(STEPS)]
    optimizer = optim.LazyAdam(net.trainable_params(), 0.05)
    columns = ["ids", "g_ids", "more", "g_more", "g_w", "g_gamma"]
    dataset = GeneratorDataset(lambda: iter(batches), columns, shuffle=False)
    ms.Model(net, optimizer=optimizer).train(1, dataset, dataset_sink_mode=False)
    model = numpy_optim.LinearModel(numpy_optim.adam(), rates=0.05)
    for batch in batches:
        model.step(batch)
    model.check(net)
    assert optimizer.global_step.asnumpy().tolist() == [STEPS]


@pytest.mark.parametrize("clip", [None, 0.1])
def test_only_dense_parameters(mode, clip):
    layer = nn.Dense(3, 1, weight_init="ones", bias_init="zeros")
    net = SumOf(layer)
    optimizer = optim.SGD(net.trainable_params(), 1.0, clip_global_norm=clip)
    train = nn.TrainOneStepCell(net, optimizer)
    train(Tensor([[0.3, 0.4, 0.0]], ms.float32))
    factor = 1.0 if clip is None else clip / np.sqrt(0.25 + 1.0)
    np.testing.assert_allclose(
        layer.weight.asnumpy()[0], 1 - factor * np.array([0.3, 0.4, 0]), rtol=1e-6
    )
    np.testing.assert_allclose(layer.bias.asnumpy(), [-factor], rtol=1e-6)
    optim.check_covered(net, optimizer)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_only_a_table(numpy_optim, mode, clip):
    net = numpy_optim.LinearNet()
    net.w.requires_grad = net.gamma.requires_grad = False
    optimizer = optim.FTRL(net.trainable_params(), clip_global_norm=clip, learning_rate=0.1)
    assert optimizer.parameters == (net.table.anchor,)
    model = numpy_optim.LinearModel(numpy_optim.ftrl(), clip=clip)
    train, rng = numpy_optim.train_cell(net, optimizer), np.random.default_rng(0)
    for _ in range(STEPS):
        *tables, g_w, g_gamma = numpy_optim.random_batch(rng)
        batch = (*tables, 0 * g_w, 0 * g_gamma)
        train(*batch)
        model.step(batch)
    for key, row in model.rows.items():
        got = net.table.read_rows(np.array([key], np.int64))[0]
        np.testing.assert_allclose(got, row, 2e-5, 2e-6)
