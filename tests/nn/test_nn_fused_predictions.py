# SPDX-License-Identifier: Apache-2.0
"""Predictions of few rows, which the native core computes without filling slices and packing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

import mindspore_rec
from mindspore_rec.nn import (
    MLP,
    CrossNet,
    CrossNetMix,
    CrossNetV2,
    FusedLayer,
    MMoE,
)
from tests.nn.mlp_pair import numbers

MADE: dict[str, Callable[[], FusedLayer]] = {
    "mlp": lambda: MLP((20, 13), (48, 17), out_features=1),
    "gelu": lambda: MLP((20, 13), (48, 17), "gelu"),
    "norm": lambda: MLP((20, 13), (24, 17), batch_norm=True, out_features=3),
    "bfloat16": lambda: MLP((20, 13), (24, 17), out_features=3, compute_dtype="bfloat16"),
    "cross": lambda: CrossNet((20, 13), 3),
    "cross-v2": lambda: CrossNetV2((20, 13), 3),
    "cross-mix": lambda: CrossNetMix((20, 13), 2, experts=3, rank=5),
    "mmoe": lambda: MMoE((20, 13), 3, (24, 5), 2),
}


def first(y: Any) -> np.ndarray:
    """Return the layer's output, or its first."""
    return (y[0] if isinstance(y, tuple) else y).asnumpy().copy()


def close(got: np.ndarray, expected: np.ndarray, precision: float) -> None:
    """Assert that two results are the same but for the rounding of the sums of large terms."""
    np.testing.assert_allclose(
        got, expected, rtol=precision, atol=precision / 10 * float(np.abs(expected).max())
    )


def two(kind: str) -> tuple[FusedLayer, FusedLayer]:
    """Return a layer with numbers of its own, and one of MindSpore's layers with the same."""
    made = []
    for _ in range(2):
        ms.set_seed(2)
        made.append(MADE[kind]().set_train(False))
    for k, p in enumerate(made[0].get_parameters()):
        values = np.random.default_rng(k).uniform(0.1, 0.5, p.shape).astype(np.float32)
        p.set_data(Tensor(values))
    plain = made[1]
    ms.load_param_into_net(plain, made[0].parameters_dict())
    plain.fused_training = plain.fused_evaluation = None
    for cell in plain.cells_in():
        if isinstance(cell, FusedLayer):
            cell.fused_training = cell.fused_evaluation = None
    assert made[0].is_fused and not plain.is_fused
    return made[0], plain


@pytest.mark.parametrize("kind", MADE)
def test_predictions_of_any_number_of_rows(pynative, kind):
    fused, plain = two(kind)
    for rows in (1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 80):
        x = [numbers(rows, 20, seed=rows), numbers(rows, 13, seed=rows + 1)]
        got, expected = first(fused(*x)), first(plain(*x))
        close(got, expected, 2e-3 if kind == "bfloat16" else 1e-4)


@pytest.mark.parametrize("kind", MADE)
def test_few_rows_have_the_same_bits_for_any_number_of_threads(pynative, kind):
    fused, _ = two(kind)
    before = mindspore_rec.get_num_threads()
    try:
        for rows in (1, 5, 64):
            x = [numbers(rows, 20), numbers(rows, 13)]
            found = []
            for threads in (1, 3, 1):
                mindspore_rec.set_num_threads(threads)
                found.append(first(fused(*x)))
            for other in found[1:]:
                np.testing.assert_array_equal(other, found[0])
    finally:
        mindspore_rec.set_num_threads(before)


@pytest.mark.parametrize("kind", ["mlp", "norm", "cross-mix"])
def test_gradients_of_few_rows_in_evaluation(pynative, kind):
    def total(layer: FusedLayer) -> Callable[..., Any]:
        def of(x: Tensor, y: Tensor) -> Any:
            return layer(x, y).sum()

        return of

    x = [numbers(3, 20), numbers(3, 13)]
    got, expected = (ms.grad(total(layer), (0, 1))(*x) for layer in two(kind))
    for g, e in zip(got, expected, strict=True):
        close(g.asnumpy(), e.asnumpy(), 1e-4)


def test_new_weights_are_used_at_once(mode):
    layer, _ = two("mlp")
    x = [numbers(1, 20), numbers(1, 13)]
    assert first(layer(*x)).any()
    for p in layer.get_parameters():
        p.set_data(Tensor(np.zeros(p.shape, np.float32)))
    assert not first(layer(*x)).any()
