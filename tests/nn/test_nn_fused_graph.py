# SPDX-License-Identifier: Apache-2.0
"""FusedGraph against the same layers one by one, as MindSpore's own."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec.nn import (
    MLP,
    CrossNet,
    CrossNetMix,
    CrossNetV2,
    DotInteraction,
    FactorizationMachine,
    FusedGraph,
    NumberEmbedding,
)
from tests.nn.fused_cells import MODES, GraphOf, close, rows_of, run, unfuse
from tests.support.nightly import examples

F, N, D = 3, 2, 4
WIDTHS = (F * D, N * D)
ROW = ("vectors", "scaled")
GIVEN = {"vectors": F * D, "numbers": N}


class Net(nn.Cell):
    """A network of one graph over embeddings `[B, F, D]` and numbers `[B, N]`."""

    def __init__(self, kind: str, dropout: float = 0.0, batch_norm: bool = False) -> None:
        super().__init__()
        self.scaled = NumberEmbedding(N, D, 0.5)
        steps: dict[str, Any] = {"scaled": (self.scaled, ("numbers",))}
        outputs: tuple[str, ...] = ()
        if kind == "pairs":  # as DeepFM
            self.pairs = FactorizationMachine((F, N), D)
            self.deep = MLP(WIDTHS, (7, 5), "relu", dropout, batch_norm, 1)
            steps |= {"paired": (self.pairs, ROW), "deep": (self.deep, ROW)}
            outputs = ("paired", "deep")
        elif kind == "dots":  # as DLRM
            del steps["scaled"]
            self.bottom = MLP(N, (6, D), "relu", dropout, batch_norm)
            self.pairs = DotInteraction(F, D, dense=True)
            self.top = MLP(self.pairs.out_features, (5,), "relu", dropout, batch_norm, 1)
            steps["bottom"] = (self.bottom, ("numbers",))
            steps["pairs"] = (self.pairs, ("vectors", "bottom"))
            steps["logit"] = (self.top, ("pairs",))
        else:  # as DCN
            make = {"vector": CrossNet, "matrix": CrossNetV2, "mixture": CrossNetMix}[kind]
            self.cross = make(WIDTHS, 2)
            self.deep = MLP(WIDTHS, (7, 5), "tanh", dropout, batch_norm)
            self.output = nn.Dense(sum(WIDTHS) + 5, 1)
            steps["crossed"] = (self.cross, ROW)
            steps["deep"] = (self.deep, ROW)
            steps["logit"] = (self.output, ("crossed", "deep"))
        self.several = len(outputs) > 1
        self.graph = FusedGraph(GIVEN, steps, outputs)

    @property
    def is_fused(self) -> bool:
        return self.graph.is_fused

    def construct(self, vectors: Tensor, numbers: Tensor) -> Tensor:
        found = self.graph(vectors, numbers)
        return found[0] + found[1] if self.several else found


def pair_of(kind: str, dropout: float, batch_norm: bool, training: bool) -> tuple[Net, Net]:
    """A fused network, and one with the same parameters and masks of MindSpore's own layers."""
    nets = []
    for _ in range(2):
        ms.set_seed(5)
        nets.append(Net(kind, dropout, batch_norm).set_train(training))
    assert nets[0].is_fused
    unfuse(nets[1])
    return nets[0], nets[1]


KINDS = ("pairs", "dots", "vector", "matrix", "mixture")


@examples(3, 25)
@given(
    kind=st.sampled_from(KINDS),
    dropout=st.sampled_from([0.0, 0.3]),
    batch_norm=st.booleans(),
    batch=st.sampled_from([2, 7, 33, 300]),
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
@example("pairs", 0.3, True, 300, ms.GRAPH_MODE, True)
@example("dots", 0.3, False, 300, ms.GRAPH_MODE, True)
@example("vector", 0.0, True, 300, ms.PYNATIVE_MODE, True)
@example("pairs", 0.0, True, 2, ms.PYNATIVE_MODE, True)
@example("vector", 0.0, True, 2, ms.PYNATIVE_MODE, True)
def test_a_graph_is_its_layers(kind, dropout, batch_norm, batch, mode, training):
    ms.set_context(mode=mode, pynative_synchronize=True)
    fused, plain = pair_of(kind, dropout, batch_norm, training)
    inputs = [rows_of(batch, F, D), rows_of(batch, N, seed=1)]
    weights = [rows_of(batch, 1, seed=2)]
    got, expected = run(fused, inputs, weights), run(plain, inputs, weights)
    close(got[0], expected[0], 3e-5)
    # A bias before a normalization has no gradient but rounding; there is none here.
    if batch_norm and training and batch == 2:
        # Two normalized rows are -1 and 1, but for epsilon: gradients in front of them are terms of
        # the size of those behind, which cancel. They are exact beside those.
        largest = max(float(np.abs(each).max()) for each in expected[1])
        for one, other in zip(got[1], expected[1], strict=True):
            np.testing.assert_allclose(one / largest, other / largest, rtol=0, atol=1e-4)
    else:
        close(got[1], expected[1], 1e-4)
    state = [{p.name: p.asnumpy() for p in net.get_parameters()} for net in (fused, plain)]
    assert list(state[0]) == list(state[1])
    for name, value in state[0].items():  # moving statistics, too
        np.testing.assert_allclose(value, state[1][name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_layers_keep_their_names():
    names = [p.name for p in Net("vector").trainable_params()]
    assert names[:3] == ["scaled.vectors", "cross.weight", "cross.bias"]
    assert names[-2:] == ["output.weight", "output.bias"]
    assert len(set(names)) == len(names)


def test_layers_in_bfloat16_run_one_by_one(mode):
    net = Net("matrix")
    inputs = [Tensor(rows_of(9, F, D)), Tensor(rows_of(9, N, seed=1))]
    exact = net(*inputs).asnumpy()
    assert net.graph.set_compute_dtype("bfloat16") is net.graph
    assert net.cross.compute_dtype == net.deep.compute_dtype == "bfloat16"
    assert [net.is_fused, net.cross.is_fused] == [False, True]
    rounded = net(*inputs).asnumpy()
    assert not np.array_equal(rounded, exact)
    np.testing.assert_allclose(rounded, exact, rtol=0.1, atol=0.1)
    net.graph.set_compute_dtype("float32")
    assert [net.is_fused] == [True]
    np.testing.assert_array_equal(net(*inputs).asnumpy(), exact)


def test_a_layer_in_half_precision_is_not_fused():
    net = Net("vector")
    net.output.to_float(ms.float16)
    assert not net.is_fused


def test_other_inputs_are_refused(mode):
    net = Net("vector")
    with pytest.raises(TypeError, match="must be given 2 inputs"):
        net.graph(Tensor(rows_of(2, F, D)))
    with pytest.raises((ValueError, RuntimeError), match=r"input 1 must be \[2, 2\]"):
        net.graph(Tensor(rows_of(2, F, D)), Tensor(rows_of(2, 3))).asnumpy()


def test_what_is_no_graph_is_refused():
    deep, wide = MLP(4, (3,)), MLP((4, 2), (3,))
    given_ = {"x": 4, "y": 2}
    with pytest.raises(ValueError, match="at least one entry"):
        FusedGraph({}, {"deep": (deep, ("x",))})
    with pytest.raises(ValueError, match="at least one entry"):
        FusedGraph(given_, {})
    with pytest.raises(ValueError, match="got 'z'"):
        FusedGraph(given_, {"deep": (deep, ("z",))})
    with pytest.raises(ValueError, match="got 'deep'"):
        FusedGraph(given_, {"deep": (deep, ("deep",))})
    with pytest.raises(ValueError, match="twice"):
        FusedGraph(given_, {"x": (deep, ("x",))})
    with pytest.raises(ValueError, match=r"deep must read inputs of widths \(4,\), got \(2,\)"):
        FusedGraph(given_, {"deep": (deep, ("y",))})
    with pytest.raises(ValueError, match="must read 5 floats a row"):
        FusedGraph(given_, {"out": (nn.Dense(5, 1), ("x", "y"))})
    with pytest.raises(TypeError, match="fused form, got ReLU"):
        FusedGraph(given_, {"out": (nn.ReLU(), ("x",))})
    with pytest.raises(TypeError, match="fused form, got Dense"):
        FusedGraph(given_, {"out": (nn.Dense(4, 1, activation="relu"), ("x",))})
    with pytest.raises(ValueError, match="outputs must be names of steps"):
        FusedGraph(given_, {"deep": (deep, ("x",))}, ("x",))
    with pytest.raises(ValueError, match="same things side by side"):
        other = MLP((2, 4), (3,))
        FusedGraph(given_, {"a": (wide, ("x", "y")), "b": (other, ("y", "x"))})
    with pytest.raises(ValueError, match="same things side by side"):
        FusedGraph({"x": 4}, {"a": (MLP((4, 4), (3,)), ("x", "x"))})


def test_a_step_nobody_reads_has_gradients_of_zero(mode):
    deep, idle = MLP(4, (3,), out_features=1), MLP(4, (3,))

    net = GraphOf({"x": 4}, {"idle": (idle, ("x",)), "deep": (deep, ("x",))}).set_train()
    x, weight = rows_of(5, 4), [rows_of(5, 1, seed=1)]
    outputs, found = run(net, [x], weight)
    expected = run(deep, [x], weight)
    close(outputs, expected[0])
    count = len(deep.trainable_params())
    close([found[0], *found[-count:]], expected[1])
    assert len(found) > 1 + count
    assert all((gradient == 0).all() for gradient in found[1:-count])


@examples(4, 20)
@given(
    numbers=st.integers(1, 20),
    dim=st.integers(1, 40),
    batch=st.sampled_from([1, 2, 33, 300]),
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
def test_embedded_numbers_are_those_of_mindspore(numbers, dim, batch, mode, training):
    ms.set_context(mode=mode, pynative_synchronize=True)
    cell = NumberEmbedding(numbers, dim, 0.5).set_train(training)
    assert cell.is_fused
    inputs, weights = [rows_of(batch, numbers)], [rows_of(batch, numbers, dim, seed=1)]
    got = run(cell, inputs, weights)
    expected = run(unfuse(cell), inputs, weights)
    close(got[0], expected[0])
    close(got[1], expected[1])


@pytest.mark.parametrize("mode_", MODES)
def test_pairs_of_several_inputs_are_those_of_one(mode_):
    ms.set_context(mode=mode_, pynative_synchronize=True)
    x = rows_of(9, 5, 4)
    whole = FactorizationMachine(5, 4)(Tensor(x)).asnumpy()
    several = FactorizationMachine((2, 3), 4)
    parts = [Tensor(x[:, :2].copy()), Tensor(x[:, 2:].copy())]
    np.testing.assert_array_equal(several(*parts).asnumpy(), whole)
    plain = unfuse(FactorizationMachine((2, 3), 4))(*parts).asnumpy()
    np.testing.assert_allclose(plain, whole, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"input 1 must be \[B, 3, 4\]"):
        several(parts[0], parts[0])


@pytest.mark.parametrize("bad", [{"numbers": 0}, {"embedding_dim": 0}, {"std": -1.0}, {"std": "a"}])
def test_bad_arguments_of_number_embeddings_are_refused(bad):
    with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
        NumberEmbedding(**{"numbers": 2, "embedding_dim": 3, **bad})
