# SPDX-License-Identifier: Apache-2.0
"""A fused MLP beside one of MindSpore's layers, with the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.nn import MLP
from tests.nn.fused_cells import unfuse

__all__ = ["assert_same", "gradients", "mlps", "numbers"]

Array = np.ndarray[Any, Any]


def mlps(*arguments: Any, training: bool = True, **named: Any) -> tuple[MLP, MLP]:
    """Return a fused MLP and one of MindSpore's layers."""
    made = []
    for _ in range(2):
        ms.set_seed(7)  # the initial values, and the masks of dropout
        made.append(MLP(*arguments, **named).set_train(training))
    fused, plain = made
    random = np.random.default_rng(1)
    for a, b in zip(fused.trainable_params(), plain.trainable_params(), strict=True):
        if a.name.endswith("bias"):
            value = random.standard_normal(a.shape).astype(np.float32) * np.float32(0.3)
            a.set_data(Tensor(value))
            b.set_data(Tensor(value))
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    assert fused.is_fused
    unfuse(plain)
    assert not plain.is_fused
    return fused, plain


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return normal numbers."""
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def gradients(net: nn.Cell, inputs: Sequence[Tensor]) -> tuple[Array, list[Array]]:
    """Return the output, and the gradients of inputs and parameters of its product with numbers."""
    rows, width = inputs[0].shape[0], net.out_features
    given = numbers(rows, width, seed=9)

    def weighed(*x: Tensor) -> Any:
        y = net(*x)
        return (y * given).sum(), y

    positions = tuple(range(len(inputs)))
    function = ms.value_and_grad(weighed, positions, net.trainable_params(), has_aux=True)
    (_, y), (of_inputs, of_parameters) = function(*inputs)
    if isinstance(of_inputs, Tensor):  # of one input
        of_inputs = (of_inputs,)
    return y.asnumpy(), [g.asnumpy() for g in (*of_inputs, *of_parameters)]


def assert_same(got: Array, expected: Array, relative: float = 1e-5) -> None:
    """Checks that arrays differ by no more than a part of the largest element."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype == np.float32
    if not expected.size:
        return
    assert np.isfinite(expected).all()
    most = max(float(np.abs(expected).max()), 1e-3)
    np.testing.assert_allclose(got, expected, rtol=0, atol=relative * most)
