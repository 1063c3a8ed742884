# SPDX-License-Identifier: Apache-2.0
"""Every rule against its published formula in NumPy, tables and dense parameters in one network."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from mindspore import Tensor, nn, ops
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from mindspore_rec import optim
from tests.support.nightly import NIGHTLY

RATES = [0.1, 0.05, 0.02, 0.0, 0.03]

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


class DoubleSchedule(LearningRateSchedule):
    """A schedule in float64, which a table would read as other numbers."""

    def construct(self, global_step):
        return ops.cast(global_step + 1, ms.float64) * Tensor(0.01, ms.float64)


class GrowingDecay(nn.Cell):
    def construct(self, global_step):
        return ops.cast(global_step, ms.float32) * 0.02


def groups(default, of_table, of_gamma):
    """Groups with rates and decays of their own; a group's decay counts whatever the name."""

    def arguments(net):
        parts = [
            {"params": (p for p in [net.table.anchor]), "lr": of_table, "weight_decay": 0.2},
            {"params": [net.gamma], "lr": of_gamma, "weight_decay": 0.3},
            {"params": [net.w]},
            {"order_params": net.trainable_params()},
        ]
        return {"params": parts, "learning_rate": default, "weight_decay": 0.1, "loss_scale": 2.0}

    def rate(name, t):
        if name == "w":
            return default[t] if isinstance(default, list) else default
        return of_gamma if name == "gamma" else of_table

    def decay(name, t):
        return {"w": 0.1, "gamma": 0.3}.get(name, 0.2)

    return arguments, {"rates": rate, "weight_decay": decay, "decays_gamma": True}


def centralized(net):
    """MindSpore centralizes where the second axis divides by 16; a table's token is no gradient."""
    return {"params": [{"params": net.trainable_params(), "grad_centralization": True}]}


def scheduled(schedule, rates):
    return lambda net: {"learning_rate": schedule()}, {"rates": rates}


# name -> arguments for a network, arguments of the model
SETTINGS: dict[str, Any] = {
    "plain": (lambda net: {}, {}),
    "all": (
        lambda net: {
            "learning_rate": RATES,
            "weight_decay": 0.05,
            "loss_scale": 1000.0,
            "clip_global_norm": 1.5,
        },
        {"rates": RATES, "weight_decay": 0.05, "clip": 1.5},
    ),
    "exponential": scheduled(
        lambda: nn.ExponentialDecayLR(0.1, 0.5, 2), lambda name, t: 0.1 * 0.5 ** (t / 2)
    ),
    "float64": scheduled(DoubleSchedule, lambda name, t: 0.01 * (t + 1)),
    "warm-up from 0": scheduled(lambda: nn.WarmUpLR(0.1, 4), lambda name, t: 0.1 * min(t / 4, 1)),
    "growing decay": (
        lambda net: {"weight_decay": GrowingDecay(), "loss_scale": 64.0},
        {"weight_decay": lambda name, t: 0.02 * t},
    ),
    "groups": groups(0.1, 0.03, 0.02),
    "groups and a list": groups([0.4, 0.3, 0.2, 0.1, 0.0], 0.03, 0.02),
    "centralized": (centralized, {"decays_gamma": True}),
}
RATE_CHANGES = ("exponential", "float64", "warm-up from 0", "groups and a list")
PLAIN = ("SGD", "Adagrad", "RowWiseAdagrad", "LazyAdam-nesterov", "AdamW", "FTRL-power")
EVERY_RUN = [
    *(("graph", "all", rule) for rule in ("LazyAdam", "AdamW", "FTRL-power", "RowWiseAdagrad")),
    ("pynative", "all", "LazyAdam"),
    *(("pynative", "plain", rule) for rule in (*PLAIN, "RMSProp-centered")),
    *(("graph", setting, "LazyAdam") for setting in ("exponential", "float64", "warm-up from 0")),
    *(
        (mode, setting, rule)
        for mode in ("graph", "pynative")
        for setting, rules in {
            "growing decay": ("SGD", "AdamW"),
            "groups": ("Momentum",),
            "groups and a list": ("Momentum",),
            "centralized": ("SGD",),
        }.items()
        for rule in rules
    ),
]
EVERY = [
    (mode, setting, rule)
    for mode in ("graph", "pynative")
    for setting in SETTINGS
    for rule in RULES
    if not (setting in RATE_CHANGES and rule.startswith("FTRL"))  # which takes no schedule
]


def make(np_side, name, setting="plain"):
    """The optimizer over a fresh network, and a function that gives fresh models of the two."""
    cls, arguments, rule, rule_arguments = RULES[name]
    arguments_for, of_model = SETTINGS[setting]
    net = np_side.LinearNet()
    given = {"params": net.trainable_params(), "learning_rate": 0.1, **arguments_for(net)}
    numbers = {"rates": 0.1, "weight_decay": 0.0, "decays_gamma": cls is optim.FTRL, **of_model}
    if cls is optim.FTRL and setting == "all":  # FTRL takes no schedule
        given["learning_rate"] = numbers["rates"] = 0.1
    if cls is optim.AdamW and "weight_decay" not in of_model:
        numbers["weight_decay"] = 0.01
    optimizer = cls(**given, **arguments)

    def model():
        return np_side.LinearModel(
            getattr(np_side, rule)(**rule_arguments),
            decoupled=cls is optim.AdamW,
            dense_atol=1e-4 if name == "RMSProp" else 2e-6,  # MindSpore's root is approximate
            **numbers,
        )

    return net, optimizer, model, given.get("loss_scale", 1.0)


@pytest.mark.parametrize(
    ("mode", "setting", "name"), EVERY if NIGHTLY else EVERY_RUN, indirect=["mode"]
)
def test_any_batches_follow_the_formula(numpy_optim, mode, setting, name):
    net, optimizer, model, scale = make(numpy_optim, name, setting)
    assert [p.name for p in optimizer.parameters] == [p.name for p in net.trainable_params()]
    train = numpy_optim.train_cell(net, optimizer, loss_scale=scale)
    first = [(p, p.asnumpy().copy()) for p in [*net.get_parameters(), *optimizer.get_parameters()]]

    @settings(
        max_examples=8 if setting == "all" else 1,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32), keys=st.integers(0, 12), steps=st.integers(1, len(RATES)))
    @example(1, 12, 4)  # each step lacks some rows, which keep value and moments
    def check(seed, keys, steps):
        net.table.clear_rows()
        for p, value in first:
            p.set_data(Tensor(value))
        rng, expected, before = np.random.default_rng(seed), model(), net.table.step
        for _ in range(steps):
            batch = numpy_optim.random_batch(rng, keys=keys)
            train(*batch)
            expected.step(batch)
            if mode == "pynative":
                expected.check(net)
        expected.check(net)
        assert optimizer.global_step.asnumpy().tolist() == [steps]
        assert net.table.step == before + steps

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
    net, optimizer, model, _ = make(numpy_optim, "LazyAdam")
    train, expected = numpy_optim.train_cell(net, optimizer), model()
    rng = np.random.default_rng(4)
    for step in (1, 2, 1000, 100_000, 20_000_000):
        optimizer.global_step.set_data(Tensor([step - 1], ms.int32))
        expected.steps = step - 1
        batch = numpy_optim.random_batch(rng)
        train(*batch)
        expected.step(batch)
        expected.check(net, rtol=1e-5, atol=1e-6)
