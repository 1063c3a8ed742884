# SPDX-License-Identifier: Apache-2.0
"""The optimizers' formulas for rows, built from elementwise operators that all devices have.

Each rule takes gathered rows `w [n, dim]`, their states `s [n, width]` in the layout of the native
core, and the summed raw gradients `g [n, dim]`. The rule returns the new `w` and `s`. Each rule
does the same operations as `csrc/rows/kernels.inl`, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops

__all__ = ["RULES", "Numbers", "Rule"]


# Numbers that change with the step, each float32 `[1]`: learning rate, weight decay, gradient
# scale, and the bias-corrected learning rate and epsilon of Adam. `Numbers` is a plain tuple,
# because a graph does not support NamedTuple.
Numbers = tuple[Any, Any, Any, Any, Any]
Rule = Callable[[Any, Any, Any, Numbers], tuple[Any, Any]]


def _number(value: float) -> Tensor:
    # Return the number as a Tensor, because some graph operators treat a Python float as a float64.
    return Tensor(value, ms.float32)


def _rest(value: float) -> Tensor:
    """Return 1 - value, computed in float32."""
    return _number(float(np.float32(1.0) - np.float32(value)))


def _sgd(constants: Mapping[str, Any]) -> Rule:
    def rule(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        g = scale * raw + decay * w
        return w - lr * g, s

    return rule


def _momentum(constants: Mapping[str, Any]) -> Rule:
    mu, nesterov = _number(constants["momentum"]), constants["nesterov"]

    def rule(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        g = scale * raw + decay * w
        moved = s * mu + g
        ahead = g + moved * mu if nesterov else moved
        return w - lr * ahead, moved

    return rule


def _adagrad(constants: Mapping[str, Any]) -> Rule:
    eps = _number(constants["epsilon"])

    def rule(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        g = scale * raw + decay * w
        total = s + g * g
        return w - lr * g / (ops.sqrt(total) + eps), total

    return rule


def _row_wise_adagrad(constants: Mapping[str, Any]) -> Rule:
    eps = _number(constants["epsilon"])

    def rule(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        g = scale * raw + decay * w
        total = s + (g * g).mean(-1, keep_dims=True)
        return w - lr / (ops.sqrt(total) + eps) * g, total

    return rule


def _adam(constants: Mapping[str, Any], decoupled: bool = False) -> Rule:
    b1, b2 = _number(constants["beta1"]), _number(constants["beta2"])
    rest1, rest2 = _rest(constants["beta1"]), _rest(constants["beta2"])
    nesterov = constants["nesterov"]

    def rule(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, adam_lr, adam_eps = numbers
        dim = w.shape[1]
        g = scale * raw if decoupled else scale * raw + decay * w
        m = s[:, :dim] * b1 + g * rest1
        v = s[:, dim:] * b2 + g * rest2 * g
        move = m * b1 + g * rest1 if nesterov else m
        kept = w - lr * decay * w if decoupled else w
        return kept - adam_lr * move / (ops.sqrt(v) + adam_eps), ops.concat((m, v), 1)

    return rule


def _adamw(constants: Mapping[str, Any]) -> Rule:
    return _adam(constants, decoupled=True)


def _ftrl(constants: Mapping[str, Any]) -> Rule:
    l1, power = _number(constants["l1"]), constants["lr_power"]
    minus_power, zero = _number(-power), _number(0.0)
    twice_l2 = _number(float(np.float32(2.0) * np.float32(constants["l2"])))

    def root(x: Any) -> Any:
        return ops.sqrt(x) if power == -0.5 else ops.pow(x, minus_power)

    def rule(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        dim = w.shape[1]
        squares, z = s[:, :dim], s[:, dim:]
        g = scale * raw + decay * w
        more = squares + g * g
        new_root = root(more)
        z = z + g - (new_root - root(squares)) / lr * w
        toward = ops.select(z > zero, ops.zeros_like(z) + l1, ops.zeros_like(z) - l1) - z
        moved = toward / (new_root / lr + twice_l2)
        return ops.select(ops.abs(z) > l1, moved, ops.zeros_like(w)), ops.concat((more, z), 1)

    return rule


def _rmsprop(constants: Mapping[str, Any]) -> Rule:
    rho, mu = _number(constants["decay"]), _number(constants["momentum"])
    eps, rest = _number(constants["epsilon"]), _rest(constants["decay"])

    def plain(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        dim = w.shape[1]
        g = scale * raw + decay * w
        squares = s[:, :dim] * rho + g * rest * g
        moved = s[:, dim:] * mu + lr * g / ops.sqrt(squares + eps)
        return w - moved, ops.concat((squares, moved), 1)

    def centered(w: Any, s: Any, raw: Any, numbers: Numbers) -> tuple[Any, Any]:
        lr, decay, scale, *_ = numbers
        dim = w.shape[1]
        g = scale * raw + decay * w
        squares = s[:, :dim] * rho + g * rest * g
        mean = s[:, 2 * dim :] * rho + g * rest
        variance = ops.relu(squares - mean * mean)
        moved = s[:, dim : 2 * dim] * mu + lr * g / ops.sqrt(variance + eps)
        return w - moved, ops.concat((squares, moved, mean), 1)

    return centered if constants["centered"] else plain


RULES: dict[str, Callable[[Mapping[str, Any]], Rule]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adagrad,
    "row_wise_adagrad": _row_wise_adagrad,
    "adam": _adam,
    "adamw": _adamw,
    "ftrl": _ftrl,
    "rmsprop": _rmsprop,
}
