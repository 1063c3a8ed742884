# SPDX-License-Identifier: Apache-2.0
"""Every rule against its published formula in NumPy, tables and dense parameters in one network."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mindspore import Tensor

from mindspore_rec import optim

RATES = [0.1, 0.05, 0.02, 0.0, 0.03]
DYNAMIC = {"learning_rate": RATES}

# name -> optimizer, its arguments, the reference's name and arguments
RULES = {
    "LazyAdam": (optim.LazyAdam, {}, "adam", {}),
    "LazyAdam-nesterov": (
        optim.LazyAdam,
        {"beta1": 0.7, "beta2": 0.9, "eps": 1e-3, "use_nesterov": True},
        "adam",
        {"b1": 0.7, "b2": 0.9, "eps": 1e-3, "nesterov": True},
    ),
    "LazyAdam-no-moments": (
        optim.LazyAdam,
        {"beta1": 0.0, "beta2": 0.0, "eps": 0.1},
        "adam",
        {"b1": 0.0, "b2": 0.0, "eps": 0.1},
    ),
    "Adam": (optim.Adam, {"eps": 1e-4}, "adam", {"eps": 1e-4}),
    "AdamW": (optim.AdamW, {"eps": 1e-3}, "adam", {"eps": 1e-3, "inner_eps": False}),
    "FTRL": (optim.FTRL, {"l1": 0.05, "l2": 0.1}, "ftrl", {"l1": 0.05, "l2": 0.1}),
    "FTRL-power": (
        optim.FTRL,
        {"lr_power": -0.7, "initial_accum": 0.3},
        "ftrl",
        {"power": -0.7, "accum": 0.3},
    ),
    "Adagrad": (optim.Adagrad, {"accum": 0.2}, "adagrad", {"accum": 0.2}),
    "RowWiseAdagrad": (
        optim.RowWiseAdagrad,
        {"epsilon": 1e-3, "accum": 0.01},
        "row_wise_adagrad",
        {"eps": 1e-3, "accum": 0.01},
    ),
    "SGD": (optim.SGD, {}, "sgd", {}),
    "Momentum": (optim.Momentum, {"momentum": 0.8}, "momentum", {"mu": 0.8}),
    "Momentum-nesterov": (
        optim.Momentum,
        {"momentum": 0.8, "use_nesterov": True},
        "momentum",
        {"mu": 0.8, "nesterov": True},
    ),
    "RMSProp": (
        optim.RMSProp,
        {"decay": 0.8, "momentum": 0.3, "epsilon": 1e-4},
        "rmsprop",
        {"decay": 0.8, "mu": 0.3, "eps": 1e-4},
    ),
    "RMSProp-centered": (
        optim.RMSProp,
        {"centered": True, "epsilon": 1e-4},
        "rmsprop",
        {"centered": True, "eps": 1e-4},
    ),
}


def make(np_side, name, **common):
    """The optimizer over a fresh network, and a function that gives fresh models of the two."""
    cls, arguments, rule, rule_arguments = RULES[name]
    rates = common.pop("learning_rate", 0.1)
    rates = 0.1 if cls is optim.FTRL else rates  # FTRL takes no schedule
    net = np_side.LinearNet()
    optimizer = cls(net.trainable_params(), learning_rate=rates, **arguments, **common)

    def model():
        decay = common.get("weight_decay", 0.01 if cls is optim.AdamW else 0.0)
        return np_side.LinearModel(
            getattr(np_side, rule)(**rule_arguments),
            rates=rates,
            weight_decay=decay,
            clip=common.get("clip_global_norm"),
            decoupled=cls is optim.AdamW,
            decays_gamma=cls is optim.FTRL,
            dense_atol=1e-4 if name == "RMSProp" else 2e-6,  # MindSpore's root is approximate
        )

    return net, optimizer, model


@pytest.mark.parametrize("name", RULES)
def test_steps_follow_the_formula_in_pynative(numpy_optim, pynative_mode, name):
    net, optimizer, model = make(numpy_optim, name)
    train, expected = numpy_optim.train_cell(net, optimizer), model()
    rng = np.random.default_rng(1)
    for _ in range(4):
        batch = numpy_optim.random_batch(rng)
        train(*batch)
        expected.step(batch)
        expected.check(net)
    assert optimizer.global_step.asnumpy().tolist() == [4]
    assert net.table.step == 4


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("name", RULES)
def test_any_batches_with_rate_list_decay_loss_scale_and_clip(numpy_optim, name):
    scale = 1000.0
    net, optimizer, model = make(
        numpy_optim,
        name,
        **DYNAMIC,
        weight_decay=0.05,
        loss_scale=scale,
        clip_global_norm=1.5,
    )
    train = numpy_optim.train_cell(net, optimizer, loss_scale=scale)
    first = [(p, p.asnumpy().copy()) for p in [*net.get_parameters(), *optimizer.get_parameters()]]

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 2**32), keys=st.integers(0, 12), steps=st.integers(1, len(RATES)))
    def check(seed, keys, steps):
        net.table.clear_rows()
        for p, value in first:
            p.set_data(Tensor(value))
        rng, expected = np.random.default_rng(seed), model()
        for _ in range(steps):
            batch = numpy_optim.random_batch(rng, keys=keys)
            train(*batch)
            expected.step(batch)
        expected.check(net)

    check()


def test_clipping_takes_hold_and_is_exact(numpy_optim, mode):
    """SGD at rate 1: what a step moves is the clipped gradient itself."""
    for clip in (0.5, 1e6):
        net = numpy_optim.LinearNet()
        optimizer = optim.SGD(net.trainable_params(), 1.0, loss_scale=4.0, clip_global_norm=clip)
        batch = numpy_optim.random_batch(np.random.default_rng(0))
        before = net.w.asnumpy().copy()
        numpy_optim.train_cell(net, optimizer, loss_scale=4.0)(*batch)
        keys = np.unique(np.concatenate([batch[0], batch[2]]))
        table = 0.5 - net.table.read_rows(keys)
        moved = [table, before - net.w.asnumpy(), np.array([0.3, -0.2]) - net.gamma.asnumpy()]
        norm = np.sqrt(sum((m.astype(np.float64) ** 2).sum() for m in moved))
        sums = {k: np.zeros(3) for k in keys}
        for key, g in zip([*batch[0], *batch[2]], [*batch[1], *batch[3]], strict=True):
            sums[key] += g
        raw = np.sqrt(sum((np.asarray(g) ** 2).sum() for g in [*sums.values(), *batch[4:]]))
        assert norm == pytest.approx(min(clip, raw), rel=1e-5)


def test_a_table_without_gradients_this_step_stays(numpy_optim, mode):
    """Rows that do not occur keep value and moments."""
    net, optimizer, model = make(numpy_optim, "LazyAdam", weight_decay=0.1)
    train, expected = numpy_optim.train_cell(net, optimizer), model()
    rng = np.random.default_rng(2)
    first = numpy_optim.random_batch(rng)
    train(*first)
    expected.step(first)
    once = numpy_optim.random_batch(rng)
    other = (once[0] + 100, once[1], once[2] + 100, *once[3:])
    kept = {k: v.copy() for k, v in expected.rows.items()}
    train(*other)
    expected.step(other)
    expected.check(net)
    assert all((expected.rows[k] == v).all() for k, v in kept.items())


def test_centered_rmsprop_stays_finite_where_variance_rounds_to_zero(numpy_optim, mode):
    """A constant gradient leaves mean square - squared mean at 0 but for rounding."""
    net = numpy_optim.LinearNet()
    optimizer = optim.RMSProp(net.trainable_params(), 1e-6, 0.3, centered=True)
    train = numpy_optim.train_cell(net, optimizer)
    batch = numpy_optim.random_batch(np.random.default_rng(3))
    for _ in range(20):
        train(*batch)
    assert np.isfinite(net.w.asnumpy()).all()
    assert np.isfinite(net.table.read_rows(np.unique(batch[0]))).all()


def test_long_runs_keep_adams_correction_exact(numpy_optim, mode):
    """1 - beta2 ** t at the start and far on, against float64."""
    net, optimizer, model = make(numpy_optim, "LazyAdam")
    train, expected = numpy_optim.train_cell(net, optimizer), model()
    rng = np.random.default_rng(4)
    for step in (1, 2, 1000, 100_000, 20_000_000):
        optimizer.global_step.set_data(Tensor([step - 1], ms.int32))
        expected.steps = step - 1
        batch = numpy_optim.random_batch(rng)
        train(*batch)
        expected.step(batch)
        expected.check(net, rtol=1e-5, atol=1e-6)
