# SPDX-License-Identifier: Apache-2.0
"""Functions, numbers and Parameters that a `construct` reads in addition to its arguments."""

from __future__ import annotations

import random
import time
import warnings
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import concat, relu as positive

from mindspore_rec.nn import MLP, fuse
from tests.nn.fused_cells import fused_pair

A, B = np.random.default_rng(5).standard_normal((2, 8, 6)).astype(np.float32)
FACTOR = 2.0
KEPT: list[Any] = []


class Settings:
    """Settings of the user's own."""

    def __init__(self) -> None:
        self.scale, self.calls = 1.0, 0


class Two(nn.Cell):
    """Two perceptrons and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = MLP(6, (4,)), MLP(6, (4,))
        self.out = nn.Dense(8, 1)
        self.activation = ops.tanh
        self.settings, self.factors = Settings(), [1.0, 2.0]
        self.draws = np.random.default_rng(0)
        self.count = Parameter(np.zeros(1, np.float32), requires_grad=False)

    def logit(self, a: Tensor, b: Tensor) -> Tensor:
        return self.out(ops.concat((self.one(a), self.two(b)), 1))


def joined(one: Tensor, two: Tensor) -> Tensor:
    return concat((one, two), 1)


class Named(Two):
    """It calls functions by names of its module, of a helper, and of an attribute."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.activation(positive(self.out(joined(self.one(a), self.two(b)))) * FACTOR)


class Looping(Two):
    """It loops over its cells."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        found: Any = ()
        for cell in self.cells():
            found = (*found, cell(a) if len(found) < 2 else cell(ops.concat(found, 1)))
        return found[-1] + b[:, :1]


class Configured(Two):
    """Its settings are factors."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.logit(a, b) * self.settings.scale * self.factors[1] * FACTOR


class Registered(Two):
    """A class that asks something of its subclasses."""

    kinds: list[str] = []

    def __init_subclass__(cls, *, kind: str) -> None:
        cls.kinds.append(kind)


class Ranking(Registered, kind="ranking"):
    """A subclass of it."""

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.logit(a, b)


def equal(fused: Any, plain: Any) -> None:
    one, other = (net(Tensor(A), Tensor(B)).asnumpy() for net in (fused, plain))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Named, Ranking])
def test_functions_by_any_name_and_classes_of_any_kind(mode, kind):
    fused, plain = fused_pair(kind)
    assert fused.runs_as_operator and fused.fused_graph.is_fused
    equal(fused, plain)
    assert Registered.kinds == ["ranking"]
    assert fused.activation is ops.tanh and type(fused).__name__ == kind.__name__


def test_a_network_that_loops_over_its_cells(pynative):
    fused, plain = fused_pair(Looping)
    assert [*fused.cells()] == [fused.one, fused.two, fused.out] and fused.runs_as_operator
    equal(fused, plain)
    fused.set_train()
    assert fused.fused_graph.training and fused.one.training
    fused.set_train(False)
    fused.register_forward_pre_hook(lambda *_: None)
    fused.two = plain.two  # so that it runs as it is written
    with pytest.warns(RuntimeWarning, match="'two' in it is another cell than it was"):
        equal(fused, plain)


def change_settings(net: Any) -> None:
    net.settings.scale = 3.0


def change_factors(net: Any) -> None:
    net.factors[1] = 5.0


@pytest.mark.parametrize(
    ("change", "words"),
    [(change_settings, "'settings' has another value"), (change_factors, "'factors' has another")],
)
def test_a_setting_that_changes_is_seen(pynative, change, words):
    fused, plain = fused_pair(Configured)
    equal(fused, plain)
    change(fused)
    change(plain)
    with pytest.warns(RuntimeWarning, match=words):
        equal(fused, plain)


def test_a_name_of_the_module_that_changes_is_seen(pynative, monkeypatch):
    fused, plain = fused_pair(Configured)
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    with pytest.warns(RuntimeWarning, match="'FACTOR' of its module has another value"):
        equal(fused, plain)


def refusal(construct: Any) -> tuple[str, Any]:
    """Return why a network with this `construct` is not fused, and the network."""
    net: Any = type("Other", (Two,), {"construct": construct})()
    with pytest.raises(ValueError, match="Other cannot be fused: ") as raised:
        fuse(net)
    return str(raised.value).removeprefix("Other cannot be fused: "), net


def test_what_may_differ_in_the_next_step_is_a_sentence(capsys):
    def prints(self, a, b):
        print("a step")
        return self.logit(a, b)

    def writes(self, a, b):
        self.last = f"{a}"
        return self.logit(a, b)

    def draws(self, a, b):
        return self.logit(a, b) * random.random()

    def draws_by_numpy(self, a, b):
        return self.logit(a, b) * float(self.draws.random())

    def measures(self, a, b):
        return self.logit(a, b) * time.perf_counter()

    def keeps(self, a, b):
        KEPT.append(self.one(a))
        return self.logit(a, b)

    def counts(self, a, b):
        self.settings.calls += 1
        return self.logit(a, b)

    def changes(self, a, b):
        self.count.add_(1)
        return self.logit(a, b)

    def of_mindspore(self, a, b):
        return ms.ops.auto_generate.sum_ext(self.logit(a, b))

    before = random.getstate()
    assert refusal(prints)[0] == "it calls print" and capsys.readouterr().out == ""
    assert refusal(writes)[0] == "it makes text of a Tensor"
    assert refusal(draws)[0] == "it calls Random.random" and random.getstate() == before
    reason, net = refusal(draws_by_numpy)
    assert reason == "it calls Generator.random"
    assert net.draws.random() == np.random.default_rng(0).random()
    assert refusal(measures)[0] == "it calls perf_counter"
    assert refusal(keeps)[0] == "it keeps a Tensor after its forward pass"
    reason, net = refusal(counts)
    assert reason == "it changes an object of a cell in construct" and net.settings.calls == 0
    reason, net = refusal(changes)
    assert reason == "it reads the Parameter 'count'" and net.count.asnumpy() == 0
    words = "it gives a Tensor to a function that cannot be followed, in line"
    assert refusal(of_mindspore)[0].startswith(words)
    KEPT.clear()


class Rows(Two):
    """A user's vector beside the vectors of the user's items."""

    def construct(self, a: Tensor, items: Tensor) -> Tensor:
        user, each = self.one(a), self.two(items.reshape((-1, 6)))
        return (user.reshape((-1, 1, 4)) * each.reshape((-1, 2, 4))).sum(2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_of_different_numbers_of_rows(mode, dynamic):
    fused, plain = fused_pair(Rows)
    items = np.stack((A, B), 1)
    if dynamic:
        shapes = ([None, 6], [None, 2, 6])
        for net in (fused, plain):
            net.set_inputs(*(Tensor(shape=shape, dtype=ms.float32) for shape in shapes))
    fused.fused_graph.expects_rows = False
    for each in (fused, plain):
        each.set_train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            one, other = (net(Tensor(A), Tensor(items)).asnumpy() for net in (fused, plain))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    said = [str(each.message) for each in caught if "numbers of rows" in str(each.message)]
    is_silent = dynamic and ms.get_context("mode") == ms.GRAPH_MODE
    assert len(said) == (0 if is_silent else 1) and fused.runs_as_operator
