# SPDX-License-Identifier: Apache-2.0
"""`fuse`: networks whose arguments, attributes, children or state differ from the trace."""

from __future__ import annotations

import copy
import warnings
from collections import Counter, defaultdict
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec.nn import MLP, CrossNet, fuse
from tests.nn import listed_nets

ROWS = np.random.default_rng(4).standard_normal((4, 8)).astype(np.float32)
FACTOR = 2.0
SETTINGS: dict[str, Any] = {"scale": 2.0}
CALLS: list[int] = []


class Layers(nn.Cell):
    """Layers that an operator can compute, and attributes that networks use beside them."""

    calls = 0
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.cross, self.deep, self.out = CrossNet(8, 2), MLP(8, (16,)), nn.Dense(24, 1)
        self.towers = nn.CellDict({"ctr": MLP(8, (8, 1)), "cvr": MLP(8, (8, 1))})
        self.more = nn.CellList([nn.Dense(1, 1)])
        self.gate = nn.Dense(8, 8)
        self.scale: Any = None
        self.extra: Any = None
        self.activation: Any = ops.exp
        self.counter: Counter[str] = Counter()
        self.counts: dict[str, int] = defaultdict(int)
        self.array, self.nested = np.zeros(2), {"calls": {"all": 0}}

    def logit(self, x: Tensor) -> Tensor:
        return self.out(ops.concat((self.cross(x), self.deep(x)), 1))


def pair(construct: Any) -> tuple[Any, Any]:
    """Return a fused network with this `construct`, and a network with the same weights."""
    kind: Any = type("Network", (Layers,), {"construct": construct})
    plain, fused = kind(), type("Network", (Layers,), {"construct": construct})()
    for to, of in zip(fused.get_parameters(), plain.get_parameters(), strict=True):
        to.set_data(of.value())
    fused = fuse(fused)
    assert fused.runs_as_operator
    return fused, plain


def assert_same(fused: Any, plain: Any, *inputs: Any) -> list[str]:
    """Assert that two networks compute the same numbers, and return the warnings."""
    expected = plain(*inputs).asnumpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = fused(*inputs).asnumpy()
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    return [str(each.message) for each in caught if "layer by layer" in str(each.message)]


def test_children_of_a_cell_dict_are_steps_after_the_operator(mode):
    def construct(self, x):
        h = self.cross(x) * ops.sigmoid(self.gate(x))
        return self.towers["ctr"](h) + self.towers["cvr"](h)

    assert assert_same(*pair(construct), Tensor(ROWS)) == []


def test_children_with_numbers_as_names_are_refused():
    def construct(self, x):
        return getattr(self, "0")(self.cross(x) * ops.sigmoid(self.gate(x)))

    net: Any = type("Network", (Layers,), {"construct": construct})()
    setattr(net, "0", nn.Dense(8, 8))
    with pytest.raises(ValueError, match="it calls a Dense that is no attribute"):
        fuse(net)


def masked(self: Any, x: Any, mask: Any) -> Tensor:
    if mask is not None:
        x = x * mask
    return self.logit(x)


def joined(self: Any, x: Any) -> Tensor:
    if isinstance(x, (tuple, list)):
        x = ops.concat(x, 1)
    return self.logit(x)


def flagged(self: Any, x: Any, flag: Any = None) -> Tensor:
    y = self.logit(x)
    if flag is True:
        y = y * 10
    return y


@pytest.mark.parametrize(
    ("construct", "inputs"),
    [
        (masked, (Tensor(ROWS), None)),
        (masked, (Tensor(ROWS), 2.0)),
        (joined, ((Tensor(ROWS[:, :3]), Tensor(ROWS[:, 3:])),)),
        (flagged, (Tensor(ROWS), True)),
    ],
)
def test_arguments_that_are_no_tensors(mode, construct, inputs):
    fused, plain = pair(construct)
    assert_same(fused, plain, *inputs)
    assert fused.runs_as_operator


@pytest.mark.parametrize("inputs", [(Tensor(ROWS),), (Tensor(ROWS), Tensor(ROWS))])
def test_an_optional_tensor_that_is_not_used(mode, inputs):
    fused, plain = pair(flagged)
    calls: list[int] = []
    by_layers = type(fused).construct_by_layers

    def counted(self: Any, *args: Any) -> Any:
        calls.append(1)
        return by_layers(self, *args)

    type(fused).construct_by_layers = counted
    assert assert_same(fused, plain, *inputs) == [] and calls == []


def optional_parts(self: Any, x: Tensor) -> Tensor:
    y = self.logit(x)
    if self.scale is not None:
        y = y * self.scale
    if self.extra is not None:
        y = self.extra(y)
    for cell in self.more:
        y = cell(y)
    if hasattr(self, "shift"):
        y = y + self.shift
    return self.activation(y * self.factor)


def one_to_one(weight: float) -> nn.Dense:
    value = Tensor(np.array([[weight]], np.float32))
    return nn.Dense(1, 1, weight_init=value, bias_init="zeros")


def change_scale(net: Any) -> None:
    net.scale = 3.0


def change_extra(net: Any) -> None:
    net.extra = one_to_one(7.0)


def change_list(net: Any) -> None:
    net.more.append(one_to_one(7.0))


def change_shift(net: Any) -> None:
    net.shift = 2.0


def change_activation(net: Any) -> None:
    net.activation = ops.tanh


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_scale, "'scale' has another value than it had"),
        (change_extra, "'extra' in it is a new cell"),
        (change_list, "'more.1' in it is a new cell"),
        (change_shift, "'shift' has another value than it had"),
        (change_activation, "'activation' has another value than it had"),
    ],
)
def test_a_change_after_the_trace_is_seen(mode, change, words):
    fused, plain = pair(optional_parts)
    change(fused)
    change(plain)
    said = assert_same(fused, plain, Tensor(ROWS))
    assert len(said) == 1 and words in said[0] and not fused.runs_as_operator
    fuse(fused)
    assert fused.runs_as_operator and assert_same(fused, plain, Tensor(ROWS)) == []


def test_an_attribute_of_a_class_that_changes_is_seen(mode, monkeypatch):
    fused, plain = pair(optional_parts)
    monkeypatch.setattr(Layers, "factor", 4.0)
    said = assert_same(fused, plain, Tensor(ROWS))
    assert len(said) == 1 and "an attribute of the class Layers has changed" in said[0]


def test_an_attribute_of_the_fused_class_that_changes_is_seen(pynative):
    fused, _ = pair(optional_parts)
    type(fused).factor = 4.0
    with pytest.warns(RuntimeWarning, match="an attribute of the class Network has changed"):
        assert not fused.runs_as_operator


def test_attributes_that_construct_does_not_read(mode):
    fused, plain = pair(optional_parts)
    fused.history, fused.callback = [1.0], print
    assert assert_same(fused, plain, Tensor(ROWS)) == [] and fused.runs_as_operator


def assert_change_is_seen(construct: Any, change: Any, words: str) -> None:
    fused, plain = pair(construct)
    change()
    said = assert_same(fused, plain, Tensor(ROWS))
    assert len(said) == 1 and words in said[0]


def test_a_dict_of_the_module_that_changes_is_seen(pynative, monkeypatch):
    def construct(self, x):
        return self.logit(x) * SETTINGS["scale"]

    words = "'SETTINGS' of its module has another value"
    assert_change_is_seen(construct, lambda: monkeypatch.setitem(SETTINGS, "scale", 5.0), words)


def test_a_number_of_another_module_that_changes_is_seen(pynative, monkeypatch):
    def construct(self, x):
        return self.logit(x) * listed_nets.F

    words = "'F' of its module has another value"
    assert_change_is_seen(construct, lambda: monkeypatch.setattr(listed_nets, "F", 9), words)


def test_a_global_name_that_is_only_an_attribute_in_construct(pynative, monkeypatch):
    def construct(self, x):
        return self.logit(x) * self.CALLS

    monkeypatch.setattr(Layers, "CALLS", 1, raising=False)
    fused, plain = pair(construct)
    monkeypatch.setitem(globals(), "CALLS", [1, 2, 3])
    assert assert_same(fused, plain, Tensor(ROWS)) == [] and fused.runs_as_operator


def test_copies_of_a_network_that_reads_a_global_number(mode):
    def construct(self, x):
        return self.activation(self.logit(x) * FACTOR)

    fused, plain = pair(construct)
    other = copy.deepcopy(fused)
    assert other.runs_as_operator and assert_same(other, plain, Tensor(ROWS)) == []
    another = type(fused)()
    assert not another.set_train().runs_as_operator
    ms.load_param_into_net(another, plain.parameters_dict())
    assert_same(another, plain, Tensor(ROWS))


def test_a_negative_number_before_an_operator(mode):
    def construct(self, x):
        return (-2.0) ** (self.logit(x) * 0 + 2.0) + self.logit(x) * -3

    assert assert_same(*pair(construct), Tensor(ROWS)) == []


def refusal(construct: Any) -> tuple[str, Any]:
    """Return why a network with this `construct` is not fused, and the network."""
    net: Any = type("Network", (Layers,), {"construct": construct})()
    with pytest.raises(ValueError, match="Network cannot be fused: ") as raised:
        fuse(net)
    return str(raised.value).removeprefix("Network cannot be fused: "), net


def test_an_error_that_construct_catches():
    def construct(self, x):
        try:
            x = x * x.shape[1]
        except Exception:
            pass
        return self.logit(x)

    words = "it asks for 'shape' of a Tensor, which depends on the batch"
    assert refusal(construct)[0] == words


def test_state_that_construct_changes():
    def counter(self, x):
        self.counter["calls"] += 1
        return self.logit(x) / self.counter["calls"]

    def default(self, x):
        self.counts["calls"] += 1
        return self.logit(x) / self.counts["calls"]

    def array(self, x):
        self.array[0] += 1
        return self.logit(x) / float(self.array[0])

    def nested(self, x):
        self.nested["calls"]["all"] += 1
        return self.logit(x) / self.nested["calls"]["all"]

    def of_class(self, x):
        type(self).calls += 1
        return self.logit(x) / self.calls

    def of_base(self, x):
        Layers.calls += 1
        return self.logit(x) / self.calls

    def of_module(self, x):
        CALLS.append(1)
        return self.logit(x) / len(CALLS)

    def of_global_name(self, x):
        global FACTOR
        FACTOR += 1
        return self.logit(x) / FACTOR

    reason, net = refusal(counter)
    assert reason == "it changes a list, dict or set of a cell in construct" and not net.counter
    reason, net = refusal(default)
    assert reason == "it changes a list, dict or set of a cell in construct" and not net.counts
    reason, net = refusal(array)
    assert reason == "it changes an array of a cell in construct" and not net.array.any()
    reason, net = refusal(nested)
    assert reason == "it changes a list, dict or set of a cell in construct"
    assert net.nested == {"calls": {"all": 0}}
    reason, net = refusal(of_class)
    assert reason == "Network sets its 'calls' in construct" and net.calls == 0
    reason, net = refusal(of_base)
    assert reason == "Layers sets its 'calls' in construct" and net.calls == 0
    reason, net = refusal(of_module)
    assert reason == "it changes a list, dict or set of its module in construct" and not CALLS
    assert refusal(of_global_name)[0] == "it changes 'FACTOR' of its module in construct"
    assert FACTOR == 2.0
