# SPDX-License-Identifier: Apache-2.0
"""`fuse`: random networks fused, of MindSpore's layers, and as the dictionaries of a FusedGraph."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from mindspore import Tensor, mint, nn, ops

from mindspore_rec.nn import MLP, CrossNet, FactorizationMachine, NumberEmbedding, fuse
from mindspore_rec.nn.fused import FusedLayer
from tests.nn.fused_cells import MODES, close, rows_of, run, told
from tests.nn.listed_nets import D, DictionaryNet, F, ListedNet, N, steps_of
from tests.support.nightly import examples


def unfused(net: nn.Cell) -> nn.Cell:
    """Return a network of which all layers are MindSpore's."""
    for _, cell in net.cells_and_names():
        if isinstance(cell, FusedLayer):
            cell.fused_training = cell.fused_evaluation = None
    return net


def seen_of(net: nn.Cell, batch: int) -> tuple[Any, Any, list[np.ndarray]]:
    """Return outputs, gradients and parameters after one pass."""
    inputs = [rows_of(batch, F, D), rows_of(batch, N, seed=1)]
    outputs, gradients = run(net, inputs, [rows_of(batch, 1, seed=2)])
    return outputs, gradients, [p.asnumpy() for p in net.get_parameters()]


@examples(8, 60)
@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 4),
    dropout=st.sampled_from([0.0, 0.3]),
    batch_norm=st.booleans(),
    activates=st.booleans(),
    batch=st.sampled_from([7, 33, 300]),
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
@example(1, 4, 0.3, True, False, 300, ms.GRAPH_MODE, True)
@example(2, 3, 0.0, False, True, 33, ms.GRAPH_MODE, True)
@example(631, 3, 0.0, False, True, 7, ms.GRAPH_MODE, False)  # layers that nothing reads
def test_a_fused_network_is_its_layers(
    seed, count, dropout, batch_norm, activates, batch, mode, training
):
    ms.set_context(mode=mode, pynative_synchronize=True)
    drawn = (seed, count, dropout, batch_norm, activates)
    fused = fuse(ListedNet(steps_of(*drawn))).set_train(training)
    assert fused.runs_as_operator and fused.fused_graph.is_fused
    found = seen_of(fused, batch)
    plain = unfused(ListedNet(steps_of(*drawn)).set_train(training))
    expected = seen_of(plain, batch)
    close(found[0], expected[0], 1e-4)
    # A batch of 7 normalized rows has gradients that nearly cancel: beside the largest one.
    largest = max(float(np.abs(each).max()) for each in expected[1])
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one / largest, other / largest, rtol=0, atol=1e-4)
    for one, other in zip(found[2], expected[2], strict=True):  # moving statistics, too
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    names = [p.name for p in plain.get_parameters()]
    assert [p.name for p in fused.get_parameters()] == names
    if not activates:
        try:
            old = DictionaryNet(steps_of(*drawn)).set_train(training)
        except ValueError:  # layers that read the same things side by side in two orders
            return
        assert old.graph.is_fused
        assert_same_bits(found, seen_of(old, batch))


def assert_same_bits(one: Any, other: Any) -> None:
    for mine, others in zip(one, other, strict=True):
        for a, b in zip(mine, others, strict=True):
            np.testing.assert_array_equal(a, b)


class Parts(nn.Cell):
    """A cell of the user's own that returns several values."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = NumberEmbedding(N, D, 0.5)

    def construct(self, vectors: Tensor, numbers: Tensor | None = None) -> Any:
        return vectors, self.scaled(numbers)


class Net(nn.Cell):
    """A network as users write them: joined rows, a branch, something behind the layers."""

    def __init__(self, adds: bool = False) -> None:
        super().__init__()
        self.parts = Parts()
        self.cross, self.deep = CrossNet((F * D, N * D)), MLP((F * D, N * D), (6, 5), dropout=0.3)
        self.pairs = FactorizationMachine((F, N), D)
        self.joined = MLP((F + N) * D + 5, (4,), batch_norm=True)
        self.logit = nn.SequentialCell(nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 1))
        self.adds = adds
        self.concat, self.sigmoid = ops.Concat(1), ops.Sigmoid()

    def construct(self, vectors: Tensor, numbers: Tensor | None = None) -> Any:
        row = self.parts(vectors, numbers)
        joined = self.joined(self.concat((self.cross(*row), self.deep(*row))))
        logit = self.logit(joined)
        if self.training:
            logit = logit + self.pairs(*row)
        probability = ops.sigmoid(logit) * 2
        if self.adds:
            probability = probability + vectors.sum((1, 2)).reshape((-1, 1))
        return probability, self.sigmoid(mint.neg(logit))[:, 0]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_network_as_users_write_it(mode, training, adds):
    seen = []
    for fuses in (True, False):
        ms.set_seed(3)
        net = Net(adds).set_train(training)
        if fuses:
            assert fuse(net) is net
            assert type(net).__name__ == "Net" and isinstance(net, Net)
            assert net.runs_as_operator and net.training == net.deep.training == training
        else:
            unfused(net)
        inputs = [rows_of(33, F, D), rows_of(33, N, seed=1)]
        weights = [rows_of(33, 1, seed=2), rows_of(33, seed=4)]
        seen.append((*run(net, inputs, weights), [p.asnumpy() for p in net.get_parameters()]))
    for one, other in zip(*seen, strict=True):
        close(list(one), list(other), 1e-4)
    layers = [c for _, c in net.cells_and_names() if isinstance(c, FusedLayer)]
    assert len(layers) == 5


def watch(net: Any) -> None:
    net.parts.register_forward_hook(lambda *_: None)


def retype(net: Any) -> None:
    net.parts.to_float(ms.float32).add_flags(fp16=True)


def replace(net: Any) -> None:
    net.deep = MLP((F * D, N * D), (6, 5))


def replace_inside(net: Any) -> None:
    net.logit[2] = nn.Dense(3, 1)


def watch_activation(net: Any) -> None:
    net.logit[1].register_forward_hook(lambda *_: None)


CHANGES = {
    watch: "'parts' in it, of type Parts, has hooks",
    retype: "'parts' in it, of type Parts, has another type or is computed again",
    replace: "'deep' in it is another cell than it was",
    replace_inside: "'logit.2' in it is another cell than it was",
    watch_activation: "'logit.1' in it has hooks or another type",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_network_that_was_changed_runs_layer_by_layer(pynative, change):
    inputs = [Tensor(rows_of(33, F, D)), Tensor(rows_of(33, N, seed=1))]
    nets: list[Any] = []
    for make in (fuse, unfused):
        ms.set_seed(3)
        nets.append(make(Net()))
        change(nets[-1])
    said = told(lambda: [nets[0](*inputs), nets[0](*inputs)])
    assert said == [f"Net runs layer by layer, which is slower, for {CHANGES[change]}"]
    assert not nets[0].runs_as_operator
    got, expected = (net(*inputs)[0].asnumpy() for net in nets)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    if change in (replace, replace_inside):
        assert fuse(nets[0]).runs_as_operator and nets[0].fused_graph.is_fused
        np.testing.assert_allclose(nets[0](*inputs)[0].asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_frozen_layer_is_one_warning(pynative):
    net = fuse(Net()).set_train()
    net.joined.layers[1].set_train(False)
    inputs = [Tensor(rows_of(33, F, D)), Tensor(rows_of(33, N, seed=1))]
    said = told(lambda: [net(*inputs), net(*inputs)])
    assert len(said) == 1 and "'joined.layers.1' in it, of type BatchNorm1d, is set to" in said[0]
    assert not net.joined.layers[1].moving_mean.asnumpy().any()


def refusal(construct: Any, **more: Any) -> str:
    """Return why a network with this `construct` is not fused."""
    kind: Any = type("Other", (nn.Cell,), {"construct": construct})
    net: Any = kind()
    net.deep, net.logit = MLP(4, (3,)), nn.Dense(3, 1)
    before = {name: vars(cell).copy() for name, cell in net.cells_and_names()}
    with pytest.raises(ValueError, match="Other cannot be fused: ") as raised:
        fuse(net, **more)
    assert type(net) is kind and {n: vars(c) for n, c in net.cells_and_names()} == before
    return str(raised.value).removeprefix("Other cannot be fused: ")


def test_what_cannot_be_followed_is_a_sentence():
    def branches(self, x):
        return self.logit(self.deep(x) if x.sum() > 0 else x)

    def counts(self, x):
        return self.logit(self.deep(x)) * float(x.mean())

    def measures(self, x):
        return self.logit(self.deep(x.reshape((x.shape[0], -1))))

    def unpacks(self, x):
        one, other = ops.split(x, 2, 1)
        return self.deep(one) + self.deep(other)

    def sets(self, x):
        self.last = self.deep(x)
        return self.logit(self.last)

    def counts_calls(self, x):
        self.calls = 1
        return self.logit(self.deep(x))

    def elements(self, x):
        y = self.deep(x)
        y[0] = 1
        return self.logit(y)

    def nothing(self, x):
        return ops.softmax(x)

    def a_list(self, x):
        return [self.deep(x)]

    def fails(self, x):
        raise KeyError("there is no such thing")

    def a_default(self, x, scale=2.0):
        return self.logit(self.deep(x)) * scale

    def several(self, *x):
        return self.logit(self.deep(x[0]))

    def in_place(self, x):
        return self.logit(self.deep(x).add_(1))

    assert refusal(branches) == "it branches on the values of a Tensor"
    assert refusal(counts) == "it makes a Python number of a Tensor"
    assert refusal(measures) == "it asks for 'shape' of a Tensor, which depends on the batch"
    assert refusal(unpacks) == "it unpacks a Tensor, or what a layer returns"
    assert refusal(sets) == "it makes a Tensor an attribute of a cell"
    assert refusal(counts_calls) == "Other sets its 'calls' in construct"
    assert refusal(elements) == "it sets elements of a Tensor"
    assert refusal(nothing) == "it has no layers that one operator could compute"
    assert refusal(a_list) == "it returns something else than Tensors"
    assert refusal(fails) == "it raises KeyError: 'there is no such thing'"
    assert refusal(a_default) == "'scale' of its construct has a default other than None"
    assert refusal(several) == "its construct takes any number of inputs: give it as `inputs`"
    assert refusal(in_place) == "it asks for 'add_' of a Tensor"


@pytest.mark.parametrize("cell", [3, nn.SequentialCell(nn.Dense(2, 1)), nn.CellList()])
def test_what_is_no_network_is_refused(cell):
    with pytest.raises(TypeError, match="cell must be a cell with a construct of its own"):
        fuse(cell)


class AnyInputs(nn.Cell):
    """A network of any number of inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.deep, self.logit = MLP((4, 2), (3,)), nn.Dense(3, 1)

    def construct(self, *inputs: Tensor) -> Tensor:
        return self.logit(self.deep(*inputs))


def test_a_network_of_any_number_of_inputs(mode):
    net = fuse(AnyInputs(), inputs=2)
    inputs = [Tensor(rows_of(5, 4)), Tensor(rows_of(5, 2))]
    fused = net(*inputs).asnumpy()
    assert net.runs_as_operator
    np.testing.assert_allclose(unfused(net)(*inputs).asnumpy(), fused, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="its construct has 2 inputs, and not 3"):
        fuse(Net(), inputs=3)


class Shared(nn.Cell):
    """Two towers of one perceptron."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.tower = MLP(4, (3,), dropout=dropout)

    def construct(self, one: Tensor, other: Tensor) -> Tensor:
        return (self.tower(one) * self.tower(other)).sum(1, keepdims=True)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_layer_that_is_called_twice(mode, dropout):
    seen = []
    for fuses in (True, False):
        ms.set_seed(3)
        net = Shared(dropout).set_train()
        net = fuse(net) if fuses else unfused(net)
        seen.append(run(net, [rows_of(9, 4), rows_of(9, 4, seed=1)], [rows_of(9, 1, seed=2)]))
    for one, other in zip(*seen, strict=True):
        close(one, other)


class Rows(nn.Cell):
    """A linear layer over the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.deep = nn.Dense(D, 2), MLP(F * 2, (3,))

    def construct(self, vectors: Tensor) -> Tensor:
        return self.deep(self.each(vectors))


def test_a_linear_layer_over_the_last_axis(mode):
    net = fuse(Rows())
    vectors = Tensor(rows_of(5, F, D))
    found = net(vectors).asnumpy()
    np.testing.assert_allclose(found, unfused(net)(vectors).asnumpy(), rtol=1e-5, atol=1e-6)


def test_a_copy_is_fused_and_learns_alone(mode):
    net = fuse(Net()).set_train(False)
    inputs = [Tensor(rows_of(9, F, D)), Tensor(rows_of(9, N, seed=1))]
    other = copy.deepcopy(net)
    expected = net(*inputs)[0].asnumpy()
    assert other.runs_as_operator and other.fused_graph.is_fused
    np.testing.assert_array_equal(other(*inputs)[0].asnumpy(), expected)
    other.deep.layers[0].weight.set_data(Tensor(np.zeros((6, F * D + N * D), np.float32)))
    assert not np.array_equal(other(*inputs)[0].asnumpy(), expected)
    np.testing.assert_array_equal(net(*inputs)[0].asnumpy(), expected)
    net.deep = MLP((F * D, N * D), (6, 5))
    assert other.runs_as_operator and not net.runs_as_operator
