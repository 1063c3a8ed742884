# SPDX-License-Identifier: Apache-2.0
"""Cross networks as one operator: MindSpore's layers give the same values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import get_num_threads, set_num_threads
from mindspore_rec.nn import CrossNet, CrossNetMix, CrossNetV2
from mindspore_rec.train.nn.fused.library import has_onednn
from mindspore_rec.train.nn.mlp import ACTIVATIONS
from tests.support.networks import Gradients
from tests.support.nightly import examples

pytestmark = pytest.mark.skipif(not has_onednn(), reason="no oneDNN")

Maker = Callable[..., Any]
MAKERS: dict[str, Maker] = {
    "v1": lambda width, **more: CrossNet(width, 3, **more),
    "v2": lambda width, **more: CrossNetV2(width, 3, **more),
    "mix": lambda width, **more: CrossNetMix(width, 2, 3, 4, "sigmoid", **more),
    "mix linear": lambda width, **more: CrossNetMix(width, 2, 3, 4, None, **more),
}


def unfused(cell: Any) -> Any:
    cell.fused_training = cell.fused_evaluation = None
    return cell


def two_of(make: Callable[[], Any], seed: int = 5) -> tuple[Any, Any]:
    """Cells with the same weights, none of them 0: as one operator, and of MindSpore's layers."""
    ms.set_seed(seed)
    one, other = make(), unfused(make())
    assert one.is_fused and not other.is_fused
    rng = np.random.default_rng(5)
    for p, q in zip(one.trainable_params(), other.trainable_params(), strict=True):
        value = p.asnumpy()
        if not value.any():
            value = 0.3 * rng.standard_normal(p.shape)
        for parameter in (p, q):
            parameter.set_data(Tensor(value.astype(np.float32)))
    return one, other


def rows_of(rows: int, width: int, seed: int = 0) -> np.ndarray:
    scale = 1 / np.sqrt(width)  # crossed rows stay of the size of the input
    return (np.random.default_rng(seed).standard_normal((rows, width)) * scale).astype(np.float32)


def results_of(cell: Any, inputs: list[np.ndarray], sens: np.ndarray) -> list[np.ndarray]:
    """The output, the gradients of the inputs, and those of the parameters."""
    given = [Tensor(array) for array in inputs]
    of_inputs, of_weights = Gradients(cell)(*given, Tensor(sens))
    return [array.asnumpy() for array in (cell(*given), *of_inputs, *of_weights)]


def assert_close(
    got: list[np.ndarray],
    expected: list[np.ndarray],
    bound: float,
    terms: list[float] | None = None,
) -> None:
    """Check that arrays are equal within `bound` of their largest element, or of their terms."""
    assert len(got) == len(expected)
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.shape == b.shape and np.isfinite(a).all()
        scale = float(np.abs(b).max(initial=0)) or 1.0
        scale = max(scale, terms[k]) if terms else scale
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=bound, err_msg=f"array {k}")


def size_of_terms(cell: Any, inputs: list[np.ndarray], sens: np.ndarray) -> list[float]:
    """Return the size of the terms that each result is a sum of, as the root of their squares' sum.

    A sum moves by that times 2**-10 where each number is changed by a random 2**-10 of itself,
    however much of it cancels.
    """
    before = results_of(cell, inputs, sens)
    random = np.random.default_rng(2)
    found = [0.0] * len(before)
    for _ in range(3):
        changed = [
            (x * (1 + random.standard_normal(x.shape) * 2.0**-10)).astype(np.float32)
            for x in (*inputs, sens)
        ]
        after = results_of(cell, changed[:-1], changed[-1])
        moved = [float(np.abs(a - b).max(initial=0)) for a, b in zip(after, before, strict=True)]
        found = [max(a, b * 2.0**10) for a, b in zip(found, moved, strict=True)]
    return found


def compare(
    make: Callable[[], Any],
    widths: tuple[int, ...],
    rows: int,
    bound: float,
    train: bool,
    seed: int = 5,
    smooth: bool = False,
) -> None:
    """Compare both forms; where `smooth`, what cancels beside its terms."""
    one, other = two_of(make, seed)
    one.set_train(train)
    other.set_train(train)
    inputs = [rows_of(rows, sum(widths), rows)[:, : sum(widths)]]
    inputs = np.split(inputs[0], np.cumsum(widths)[:-1], axis=1)
    sens = np.random.default_rng(1).standard_normal((rows, sum(widths))).astype(np.float32)
    terms = size_of_terms(other, inputs, sens) if smooth else None
    assert_close(results_of(one, inputs, sens), results_of(other, inputs, sens), bound, terms)
    assert_close(
        [one(*map(Tensor, inputs)).asnumpy()], [other(*map(Tensor, inputs)).asnumpy()], bound
    )


GRAPH, PYNATIVE = ms.GRAPH_MODE, ms.PYNATIVE_MODE
MODES = st.sampled_from([GRAPH, PYNATIVE, PYNATIVE, PYNATIVE])  # a graph takes a second to compile
ROWS = st.sampled_from([1, 3, 16, 17, 129, 1000])
WIDTHS = st.lists(st.integers(1, 150), min_size=1, max_size=3).map(tuple)


def setting(mode: int) -> None:
    ms.set_context(mode=mode, pynative_synchronize=True)


@given(mode=MODES, widths=WIDTHS, layers=st.integers(1, 6), rows=ROWS, train=st.booleans())
@example(mode=GRAPH, widths=(300,), layers=2, rows=1000, train=True)
@example(mode=PYNATIVE, widths=(300,), layers=6, rows=1, train=False)
@example(mode=PYNATIVE, widths=(1500,), layers=2, rows=3, train=True)
@example(mode=PYNATIVE, widths=(3,), layers=64, rows=17, train=True)
@examples(3, 40)
def test_vectors_equal_mindspore_s_layers(mode, widths, layers, rows, train):
    setting(mode)
    compare(lambda: CrossNet(_given(widths), layers), widths, rows, 1e-5, train)


@given(mode=MODES, widths=WIDTHS, layers=st.integers(1, 4), rows=ROWS, train=st.booleans())
@example(mode=GRAPH, widths=(300,), layers=2, rows=1000, train=True)
@example(mode=PYNATIVE, widths=(300,), layers=1, rows=1, train=False)
@example(mode=PYNATIVE, widths=(1,), layers=64, rows=3, train=True)
@examples(3, 40)
def test_maps_equal_mindspore_s_layers(mode, widths, layers, rows, train):
    setting(mode)
    compare(lambda: CrossNetV2(_given(widths), layers), widths, rows, 1e-5, train)


@given(
    mode=MODES,
    widths=WIDTHS,
    layers=st.integers(1, 3),
    experts=st.integers(1, 5),
    rank=st.integers(1, 40),
    activation=st.none() | st.sampled_from(ACTIVATIONS),
    rows=ROWS,
    train=st.booleans(),
    seed=st.integers(0, 9),
)
@example(GRAPH, (300,), 2, 4, 32, "tanh", 1000, True, 5)
@example(GRAPH, (30,), 2, 1, 32, "gelu", 17, True, 5)
@example(PYNATIVE, (40,), 1, 1, 3, None, 17, True, 5)
@example(PYNATIVE, (40, 2), 2, 70, 3, "relu", 17, False, 5)
# Sums of 151 terms that are a thousandth of what the terms would add up to, and are all of an
# array's elements: the only unit in front of the gradient of U, and behind that of V.
@example(GRAPH, (1, 150), 1, 1, 1, None, 1, False, 348)
@example(PYNATIVE, (1, 150), 1, 1, 1, None, 1, False, 298)
@examples(4, 50)
def test_experts_equal_mindspore_s_layers(
    mode, widths, layers, experts, rank, activation, rows, train, seed
):
    setting(mode)
    # MindSpore's own tanh is off by up to 1.6e-5 on CPU.
    bound = 5e-5 if activation in ("tanh", "gelu") else 1e-5
    bends = activation in ("relu", "leakyrelu")
    if bends:
        bound = 1e-4  # of units at the bend, of either side
    compare(
        lambda: CrossNetMix(_given(widths), layers, experts, rank, activation),
        widths,
        rows,
        bound,
        train,
        seed,
        smooth=not bends,
    )


def _given(widths: tuple[int, ...]) -> int | tuple[int, ...]:
    return widths[0] if len(widths) == 1 else widths


@pytest.mark.parametrize("kind", MAKERS)
def test_a_batch_may_be_empty(mode, kind):
    cell = MAKERS[kind]((4, 3))
    inputs = [np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32)]
    output, *gradients = results_of(cell, inputs, np.zeros((0, 7), np.float32))
    assert output.shape == (0, 7)
    assert [g.shape for g in gradients[:2]] == [(0, 4), (0, 3)]
    assert all((g == 0).all() for g in gradients)


@pytest.mark.parametrize("kind", MAKERS)
def test_inputs_of_more_dimensions_are_rows(mode, kind):
    cell = MAKERS[kind]((12, 2)).set_train(False)
    x = rows_of(5, 14)
    fields, numbers = x[:, :12].reshape(5, 3, 4), np.ascontiguousarray(x[:, 12:])
    expected = cell(Tensor(np.ascontiguousarray(x[:, :12])), Tensor(numbers)).asnumpy()
    for form in (cell, unfused(MAKERS[kind]((12, 2)).set_train(False))):
        for p, q in zip(form.trainable_params(), cell.trainable_params(), strict=True):
            p.set_data(q)
        got = form(Tensor(fields), Tensor(numbers)).asnumpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", MAKERS)
def test_any_number_of_threads_gives_the_same_bits(graph_mode, kind, dtype):
    cell, _ = two_of(lambda: MAKERS[kind](70, compute_dtype=dtype))
    x, sens = rows_of(1000, 70), rows_of(1000, 70, 1)
    before = get_num_threads()
    try:
        found = []
        for threads in (1, 2, 5):
            set_num_threads(threads)
            found.append(results_of(cell.set_train(), [x], sens))
    finally:
        set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_exported_network_has_products_that_others_know(graph_mode, kind, tmp_path):
    cell, _ = two_of(lambda: MAKERS[kind](6))
    x = Tensor(rows_of(5, 6))
    cell.set_train(False)
    for file_format, products in (("MINDIR", (b"MatMul",)), ("ONNX", (b"MatMul", b"Gemm"))):
        path = tmp_path / f"net.{file_format.lower()}"
        ms.export(cell, x, file_name=str(path), file_format=file_format)
        content = path.read_bytes()
        assert any(product in content for product in products)
        assert b"MsrDense" not in content
    graph = nn.GraphCell(ms.load(str(tmp_path / "net.mindir")))
    np.testing.assert_allclose(graph(x).asnumpy(), cell(x).asnumpy(), rtol=1e-5, atol=1e-5)
    assert cell.is_fused


NAMES = {
    "v1": {"weight": (3, 6), "bias": (3, 6)},
    "v2": {f"maps.{k}.{part}": shape for k in range(3)
           for part, shape in (("weight", (6, 6)), ("bias", (6,)))},
    "mix": {**{f"mixtures.{k}.{part}": shape for k in range(2)
               for part, shape in (("v", (6, 12)), ("u", (12, 6)), ("bias", (6,)),
                                   ("c", (3, 4, 4)))},
            "gates.weight": (3, 6)},
    "mix linear": {**{f"mixtures.{k}.{part}": shape for k in range(2)
                      for part, shape in (("v", (6, 12)), ("u", (12, 6)), ("bias", (6,)))},
                   "gates.weight": (3, 6)},
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
def test_a_checkpoint_moves_both_ways(graph_mode, kind, tmp_path):
    assert {p.name: p.shape for p in MAKERS[kind](6).trainable_params()} == NAMES[kind]
    x = Tensor(rows_of(9, 6))
    for of_one, of_other in ((False, True), (True, False)):
        cells = []
        for is_plain in (of_one, of_other):
            cell = MAKERS[kind](6).set_train(False)
            cells.append(unfused(cell) if is_plain else cell)
        path = str(tmp_path / f"{of_one}.ckpt")
        ms.save_checkpoint(cells[0], path)
        missing, _ = ms.load_param_into_net(cells[1], ms.load_checkpoint(path))
        assert not missing
        np.testing.assert_allclose(
            cells[0](x).asnumpy(), cells[1](x).asnumpy(), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("kind", MAKERS)
def test_either_form_has_the_same_first_values(graph_mode, kind):
    def values() -> list[np.ndarray]:
        ms.set_seed(7)
        return [p.asnumpy().copy() for p in MAKERS[kind](8).trainable_params()]

    for a, b in zip(values(), values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gate_weights_are_those_that_the_operator_uses(mode):
    # Linear experts that all are the same: the output does not depend on the gates, but it does
    # where one expert is another.
    cell = CrossNetMix(6, 1, 3, 2, None).set_train(False)
    x = rows_of(7, 6)
    mixture = cell.mixtures[0]
    v, u = mixture.v.asnumpy(), mixture.u.asnumpy()
    gates = cell.gate_weights(Tensor(x)).asnumpy()
    units = (x @ v).reshape(7, 3, 2) * gates[:, :, None]
    expected = x * (units.reshape(7, 6) @ u) + x
    np.testing.assert_allclose(cell(Tensor(x)).asnumpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((), "in_features must be the width of at least one input"),
        ((3, 0), r"in_features\[1\] must be in \[1, 1048576\], got 0"),
        ((3, "4"), r"in_features\[1\] must be an int, got '4'"),
        ((1 << 20, 1), r"the sum of in_features must be in \[1, 1048576\], got 1048577"),
        ("3", "in_features must be an int, got '3'"),
    ],
)
def test_bad_widths(kind, widths, message):
    with pytest.raises((TypeError, ValueError), match=message):
        MAKERS[kind](widths)


@pytest.mark.parametrize("kind", MAKERS)
def test_bad_precision(kind):
    with pytest.raises(ValueError, match="compute_dtype must be one of 'float32', 'bfloat16'"):
        MAKERS[kind](3, compute_dtype="float16")


@pytest.mark.parametrize("kind", MAKERS)
def test_rows_of_another_width_are_refused(mode, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the compiler writes down what it could not compile
    cell = MAKERS[kind](6)
    with pytest.raises(Exception, match=r"must be \[6, 6\], got \[6, 4\]"):
        cell(Tensor(np.zeros((6, 4), np.float32))).asnumpy()
    plain = unfused(MAKERS[kind](6))
    with pytest.raises((ValueError, RuntimeError)):
        plain(Tensor(np.zeros((6, 4), np.float32))).asnumpy()
