# SPDX-License-Identifier: Apache-2.0
"""Cross networks in bfloat16 against a NumPy model that rounds the factors of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec.nn import CrossNet, CrossNetMix, CrossNetV2
from mindspore_rec.train.nn.fused.library import has_onednn

pytestmark = pytest.mark.skipif(not has_onednn(), reason="no oneDNN")

Array = np.ndarray
Round = Callable[[Array], Array]


def to_bfloat16(x: Array) -> Array:
    """Round to the nearest, ties to even, and return float64."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).astype(np.float64)


def of_vectors(cell: Any, x: Array, dy: Array, r: Round) -> list[Array]:
    """Output and gradients of a CrossNet, by the numbers alpha of its docstring."""
    weight, bias = (p.asnumpy().astype(np.float64) for p in (cell.weight, cell.bias))
    before = np.vstack([np.zeros_like(bias[:1]), np.cumsum(bias, 0)])
    products = r(x) @ r(weight).T
    alphas = [np.ones(len(x))]
    for k in range(len(weight)):
        alphas.append(alphas[k] * (1 + products[:, k]) + before[k] @ weight[k])
    y = alphas[-1][:, None] * x + before[-1]
    of_x, of_alpha = alphas[-1][:, None] * dy, (dy * x).sum(1)
    of_weight, of_before = np.zeros_like(weight), np.zeros_like(before)
    of_before[-1] = dy.sum(0)
    for k in reversed(range(len(weight))):
        of_weight[k] += of_alpha.sum() * before[k]
        of_before[k] += of_alpha.sum() * weight[k]
        of_product = r(of_alpha * alphas[k])
        of_x += of_product[:, None] * r(weight[k])
        of_weight[k] += of_product @ r(x)
        of_alpha = of_alpha * (1 + products[:, k])
    of_bias = np.cumsum(of_before[:0:-1], 0)[::-1]
    return [y, of_x, of_weight, of_bias]


def of_maps(cell: Any, x: Array, dy: Array, r: Round) -> list[Array]:
    weights = [linear.weight.asnumpy().astype(np.float64) for linear in cell.maps]
    crossed, mapped = [x], []
    for linear, weight in zip(cell.maps, weights, strict=True):
        mapped.append(r(crossed[-1]) @ r(weight).T + linear.bias.asnumpy())
        crossed.append(x * mapped[-1] + crossed[-1])
    gradients: list[Array] = []
    of_x, of_crossed = np.zeros_like(x), dy
    for k in reversed(range(len(weights))):
        of_mapped = of_crossed * x
        of_x = of_x + of_crossed * mapped[k]
        gradients[:0] = [r(of_mapped).T @ r(crossed[k]), of_mapped.sum(0)]
        of_crossed = of_crossed + r(of_mapped) @ r(weights[k])
    return [crossed[-1], of_x + of_crossed, *gradients]


def of_experts(cell: Any, x: Array, dy: Array, r: Round) -> list[Array]:
    """Output and gradients of one layer with sigmoids: of v, u, bias, c and the gates."""
    mixture, experts, rank = cell.mixtures[0], cell.experts, cell.rank
    v, u, c, gates = (
        p.asnumpy().astype(np.float64) for p in (mixture.v, mixture.u, mixture.c, cell.gates.weight)
    )
    columns = [slice(e * rank, (e + 1) * rank) for e in range(experts)]
    first = 1 / (1 + np.exp(-(r(x) @ r(v))))
    second = np.hstack([r(first[:, s]) @ r(c[e]) for e, s in enumerate(columns)])
    second = 1 / (1 + np.exp(-second))
    scores = np.exp(r(x) @ r(gates).T)
    scores /= scores.sum(1, keepdims=True)
    units = second * np.repeat(scores, rank, 1)
    mapped = r(units) @ r(u) + mixture.bias.asnumpy()
    of_mapped = dy * x
    of_units = r(of_mapped) @ r(u).T
    of_scores = np.stack([(of_units * second)[:, s].sum(1) for s in columns], 1)
    of_scores = scores * (of_scores - (of_scores * scores).sum(1, keepdims=True))
    of_second = of_units * np.repeat(scores, rank, 1) * second * (1 - second)
    of_c = np.stack([r(first[:, s]).T @ r(of_second[:, s]) for s in columns])
    of_first = np.hstack([r(of_second[:, s]) @ r(c[e]).T for e, s in enumerate(columns)])
    of_first = of_first * first * (1 - first)
    of_x = dy + dy * mapped + r(of_first) @ r(v).T + r(of_scores) @ r(gates)
    gradients = {
        mixture.v.name: r(x).T @ r(of_first),
        mixture.u.name: r(units).T @ r(of_mapped),
        mixture.bias.name: of_mapped.sum(0),
        mixture.c.name: of_c,
        cell.gates.weight.name: r(of_scores).T @ r(x),
    }
    return [x * mapped + x, of_x, *(gradients[p.name] for p in cell.trainable_params())]


WIDTH, ROWS = 70, 300
CASES: dict[str, tuple[Callable[[], Any], Callable[..., list[Array]]]] = {
    "v1": (lambda: CrossNet(WIDTH, 3), of_vectors),
    "v2": (lambda: CrossNetV2(WIDTH, 2), of_maps),
    "mix": (lambda: CrossNetMix(WIDTH, 1, 3, 20, "sigmoid"), of_experts),
}
PLAIN = " of MindSpore's layers"
ROUND: dict[str, Round] = {"float32": lambda x: x, "bfloat16": to_bfloat16}


def results_of(cell: Any, x: Array, dy: Array) -> Iterator[Array]:
    weights = ms.ParameterTuple(cell.trainable_params())
    grad = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)
    of_inputs, of_weights = grad(cell, weights)(Tensor(x), Tensor(dy))
    return (array.asnumpy() for array in (cell(Tensor(x)), *of_inputs, *of_weights))


def made(case: str, compute_dtype: str) -> nn.Cell:
    """A cell with biases that are not 0; `compute_dtype` as the native builder takes it."""
    ms.set_seed(11)
    cell = CASES[case][0]()
    cell.compute_dtype = compute_dtype.removesuffix(PLAIN)
    if cell.compute_dtype == compute_dtype:
        cell._fuse()
    else:
        cell.fused_training = cell.fused_evaluation = None
    for number, p in enumerate(cell.trainable_params()):
        if "bias" in p.name:
            shift = 0.1 * np.random.default_rng(number).standard_normal(p.shape)
            p.set_data(Tensor(shift.astype(np.float32)))
    return cell.set_train()


def distance(found: list[Array], expected: list[Array], share: float = 1.0) -> float:
    """The greatest difference, relative to an array's greatest element, of a share of elements."""
    return max(
        float(np.quantile(np.abs(a - b), share) / np.abs(b).max())
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize(
    "compute_dtype", ["float32", "bfloat16", "bfloat16_in_float32", f"bfloat16{PLAIN}"]
)
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_rounded_factors(case, compute_dtype):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((ROWS, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
    dy = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    cell, model = made(case, compute_dtype), CASES[case][1]
    dtype = compute_dtype.removesuffix("_in_float32").removesuffix(PLAIN)
    arguments = cell, x.astype(np.float64), dy.astype(np.float64)
    found = list(results_of(cell, x, dy))
    expected = model(*arguments, ROUND[dtype])
    # The last bit of a layer's result may decide to which side a factor is rounded.
    assert distance(found, expected, 0.95) < (1e-4 if PLAIN in compute_dtype else 1e-5)
    assert distance(found, expected) < (1e-5 if dtype == "float32" else 5e-4)
    other = "float32" if dtype == "bfloat16" else "bfloat16"
    assert distance(found, model(*arguments, ROUND[other])) > 1e-3


def test_bfloat16_trains_as_float32_does():
    ms.set_context(mode=ms.GRAPH_MODE)
    losses = {}
    rng = np.random.default_rng(0)
    x = rng.standard_normal((512, 8)).astype(np.float32)
    target = ((x[:, :1] + x[:, 1:2]) * x[:, 2:3]).astype(np.float32)
    for dtype in ("float32", "bfloat16"):
        ms.set_seed(1)
        net = nn.SequentialCell(CrossNetV2(8, 2, compute_dtype=dtype), nn.Dense(8, 1))
        loss = nn.WithLossCell(net, nn.MSELoss())
        step = nn.TrainOneStepCell(loss, nn.Adam(net.trainable_params(), 0.02)).set_train()
        losses[dtype] = [float(step(Tensor(x), Tensor(target))) for _ in range(150)][-1]
    assert losses["float32"] < 0.1 * target.var()
    assert losses["bfloat16"] < 0.15 * target.var()
