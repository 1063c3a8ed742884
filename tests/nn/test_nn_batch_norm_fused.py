# SPDX-License-Identifier: Apache-2.0
"""A perceptron with batch normalization is MindSpore's, fused: values, gradients, statistics."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from mindspore import Tensor, nn

import mindspore_rec.train.nn.fused.layer as fused_layer
from mindspore_rec.nn import MLP
from tests.nn.normalized_terms import gradient_terms
from tests.support.networks import Gradients


def fill(net: MLP, seed: int) -> MLP:
    """Give all parameters, statistics too, values of a seed."""
    random = np.random.default_rng(seed)
    for parameter in net.get_parameters():
        if parameter.name.endswith("used"):
            continue
        values = random.standard_normal(parameter.shape).astype(np.float32)
        is_variance = parameter.name.endswith("variance")
        parameter.set_data(Tensor(np.abs(values) + 0.5 if is_variance else values))
    return net


def pair(*arguments: Any, seed: int = 0, **more: Any) -> tuple[MLP, MLP]:
    """The same perceptron, fused and of MindSpore's layers."""
    found = []
    for fuses in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not fuses:
                patch.setattr(fused_layer, "has_onednn", lambda: False)
            ms.set_seed(1)  # the same masks of a dropout
            more["batch_norm"] = True
            found.append(fill(MLP(*arguments, **more), seed))
    assert found[0].is_fused and not found[1].is_fused
    return found[0], found[1]


def everything(net: MLP, inputs: list[np.ndarray], dout: np.ndarray) -> dict[str, np.ndarray]:
    """Return gradients and moving statistics, and then outputs of a training and an evaluation."""
    given = [Tensor(x) for x in inputs]
    of_inputs, of_weights = Gradients(net.set_train())(*given, Tensor(dout))
    found = {f"input {i}": g for i, g in enumerate(of_inputs)}
    found |= {p.name: g for p, g in zip(net.trainable_params(), of_weights, strict=True)}
    found |= {
        f"value of {p.name}": Tensor(p.asnumpy().copy())
        for p in net.get_parameters()
        if not p.requires_grad
    }
    found["training"] = net(*given)
    found["evaluation"] = net.set_train(False)(*given)
    return {name: value.asnumpy() for name, value in found.items()}


def compare(
    both: tuple[MLP, MLP],
    rows: int,
    widths: list[int],
    units: int,
    seed: int,
    rectified: bool = False,
) -> None:
    random = np.random.default_rng(seed)
    inputs = [random.standard_normal((rows, w)).astype(np.float32) * 2 + 1 for w in widths]
    dout = random.standard_normal((rows, units)).astype(np.float32)
    # Gradients in front of a normalization are sums that cancel, down to nothing: they are exact
    # beside the sum of their terms' absolute values.
    terms = gradient_terms(both[0], inputs, dout) if rectified else {}
    one, other = (everything(net, inputs, dout) for net in both)
    assert one.keys() == other.keys()
    largest = max(np.abs(value).max() for value in other.values())
    for name, value in other.items():
        cancelled = terms.get(name.removeprefix("net."), 0.0)
        atol = max(1e-5 * float(largest), 1e-6 * cancelled)
        np.testing.assert_allclose(one[name], value, rtol=1e-5, atol=atol, err_msg=name)


@given(
    rows=st.sampled_from([3, 4, 17, 63, 65, 300]),
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=2),
    hidden=st.lists(st.integers(1, 9), min_size=1, max_size=2),
    out=st.none() | st.integers(1, 3),
    activation=st.sampled_from(["relu", "leakyrelu"]),
    seed=st.integers(0, 9),
)
# The second weight's gradient is 0.3, of 300 terms up to 30.
@example(rows=300, widths=[1], hidden=[1, 1], out=None, activation="leakyrelu", seed=0)
@example(rows=65, widths=[6, 4], hidden=[1, 2], out=2, activation="relu", seed=0)
@settings(max_examples=40)
def test_fused_is_mindspores(rows, widths, hidden, out, activation, seed):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    both = pair(widths, hidden, activation, out_features=out, seed=seed)
    units = hidden[-1] if out is None else out
    compare(both, rows, widths, units, seed, rectified=True)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_fused_is_mindspores_in_both_modes(mode, activation, dropout):
    compare(pair(6, (8, 5), activation, dropout, out_features=2), 600, [6], 2, 3)


def reference(net: MLP, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The formula in double: output in training, and mean and variance of each hidden layer."""
    found: list[np.ndarray] = []
    x = x.astype(np.float64)
    layers = list(net.layers)
    for k, layer in enumerate(layers):
        if isinstance(layer, nn.Dense):
            x = x @ layer.weight.asnumpy().T.astype(np.float64)
            x = x + layer.bias.asnumpy() if layer.has_bias else x
        elif isinstance(layer, nn.BatchNorm1d):
            found += [x.mean(0), x.var(0, ddof=1) if len(x) > 1 else x.var(0)]
            x = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
            x = x * layer.gamma.asnumpy() + layer.beta.asnumpy()
        else:
            assert k < len(layers)
            x = np.tanh(x) if isinstance(layer, nn.Tanh) else 1 / (1 + np.exp(-x))
    return x, found


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_smooth_activations_are_the_formula(mode, activation, rows):
    # MindSpore's own tanh and sigmoid are less exact than 1e-5.
    net = fill(MLP(5, (7,), activation, batch_norm=True, out_features=2), 4)
    before = [
        p.asnumpy().copy() for p in (net.layers[1].moving_mean, net.layers[1].moving_variance)
    ]
    x = np.random.default_rng(3).standard_normal((rows, 5)).astype(np.float32)
    expected, statistics = reference(net, x)
    got = net.set_train()(Tensor(x)).asnumpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    after = [p.asnumpy() for p in (net.layers[1].moving_mean, net.layers[1].moving_variance)]
    for old, new, batch in zip(before, after, statistics, strict=True):
        np.testing.assert_allclose(new, 0.9 * old + 0.1 * batch, rtol=1e-5, atol=1e-6)


def test_one_row_and_no_row_keep_the_statistics_numbers(mode):
    net = fill(MLP(3, (4,), batch_norm=True), 2).set_train()
    norm = net.layers[1]
    mean, variance = norm.moving_mean.asnumpy().copy(), norm.moving_variance.asnumpy().copy()
    net(Tensor(np.ones((1, 3), np.float32)))
    batch = np.ones(3, np.float32) @ net.layers[0].weight.asnumpy().T
    np.testing.assert_allclose(norm.moving_mean.asnumpy(), 0.9 * mean + 0.1 * batch, rtol=1e-5)
    np.testing.assert_array_equal(norm.moving_variance.asnumpy(), variance)
    mean = norm.moving_mean.asnumpy().copy()
    assert net(Tensor(np.ones((0, 3), np.float32))).shape == (0, 4)
    np.testing.assert_array_equal(norm.moving_mean.asnumpy(), mean)
    np.testing.assert_array_equal(norm.moving_variance.asnumpy(), variance)


def test_statistics_move_once_a_step(mode):
    both = pair(3, (4,), out_features=1)
    x, y = np.random.default_rng(0).standard_normal((2, 32, 3)).astype(np.float32)

    for net in both:
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
        for _ in range(5):
            step(Tensor(x), Tensor(y[:, :1]))
    for one, other in zip(*(net.get_parameters() for net in both), strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)


def test_same_bits_for_any_number_of_threads(graph_mode, threads):
    random = np.random.default_rng(1)
    x, dout = (random.standard_normal((1500, w)).astype(np.float32) for w in (20, 3))
    found = []
    for count in (1, 2, 5):
        threads(count)
        net = fill(MLP(20, (33, 16), "tanh", batch_norm=True, out_features=3), 7)
        found.append(everything(net, [x], dout))
    for name, value in found[0].items():
        for other in found[1:]:
            np.testing.assert_array_equal(other[name], value, err_msg=name)


def test_checkpoints_move_both_ways(graph_mode, tmp_path):
    fused, plain = pair(4, (3,), out_features=1)
    fill(plain, 9)
    path = str(tmp_path / "plain.ckpt")
    ms.save_checkpoint(plain, path)
    assert ms.load_param_into_net(fused, ms.load_checkpoint(path)) == ([], [])
    x = Tensor(np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
    one, other = (net.set_train(False)(x).asnumpy() for net in (fused, plain))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_bfloat16_normalizes_in_float32(mode):
    fused, plain = pair(6, (8,), out_features=2, compute_dtype="bfloat16")
    x = Tensor(np.random.default_rng(2).standard_normal((64, 6)).astype(np.float32))
    one, other = (net.set_train()(x).asnumpy() for net in (fused, plain))
    # The sums before a rounding may differ in their last bits.
    np.testing.assert_allclose(one, other, rtol=1e-2, atol=2e-2)
    mean, expected = (net.layers[1].moving_mean.asnumpy() for net in (fused, plain))
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
