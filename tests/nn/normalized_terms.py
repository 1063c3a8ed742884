# SPDX-License-Identifier: Apache-2.0
"""Sizes of the terms that gradients of a normalized perceptron are sums of.

What stands in front of a normalization changes neither its mean nor, but for epsilon, its variance:
gradients there are sums that cancel, to nothing for a bias or for the weight of a single unit. A
float32 sum is exact beside the sum of its terms' absolute values, not beside itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import nn

from mindspore_rec.nn import MLP

__all__ = ["gradient_terms"]

Array = np.ndarray[Any, Any]


def gradient_terms(net: MLP, inputs: list[Array], dout: Array) -> dict[str, float]:
    """Return, by parameter's name, the largest sum of absolute values of its gradient's terms.

    Computed in float64. A gradient behind a normalization counts as its three terms, too.
    """
    steps = _forward(net, np.concatenate(inputs, axis=1).astype(np.float64))
    found: dict[str, float] = {}
    gradient = dout.astype(np.float64)
    terms = np.abs(gradient)
    for layer, given, factor in reversed(steps):
        if isinstance(layer, nn.Dense):
            found[layer.weight.name] = float((terms.T @ np.abs(given)).max())
            if layer.has_bias:
                found[layer.bias.name] = float(terms.sum(0).max())
            gradient = gradient @ factor
            terms = np.maximum(np.abs(gradient), terms @ np.abs(factor))
        elif isinstance(layer, nn.BatchNorm1d):
            found[layer.gamma.name] = float((terms * np.abs(given)).sum(0).max())
            found[layer.beta.name] = float(terms.sum(0).max())
            mean, slope = gradient.mean(0), (gradient * given).mean(0)
            terms = np.abs(factor) * (np.abs(gradient) + np.abs(mean) + np.abs(given * slope))
            gradient = factor * (gradient - mean - given * slope)
        else:
            gradient, terms = gradient * factor, terms * factor
    return found


def _forward(net: MLP, value: Array) -> list[tuple[nn.Cell, Array, Array]]:
    """Return each layer, what it multiplies, and what it multiplies a gradient by."""
    steps: list[tuple[nn.Cell, Array, Array]] = []
    for layer in net.layers:
        if isinstance(layer, nn.Dense):
            weight = _of(layer.weight)
            steps.append((layer, value, weight))
            value = value @ weight.T + (_of(layer.bias) if layer.has_bias else 0.0)
        elif isinstance(layer, nn.BatchNorm1d):
            gamma, scale = _of(layer.gamma), 1 / np.sqrt(value.var(0) + layer.eps)
            value = (value - value.mean(0)) * scale
            steps.append((layer, value, gamma * scale))
            value = value * gamma + _of(layer.beta)
        else:
            slope = np.where(value > 0, 1.0, 0.2 if isinstance(layer, nn.LeakyReLU) else 0.0)
            steps.append((layer, value, slope))
            value = value * slope
    return steps


def _of(parameter: Any) -> Array:
    return np.asarray(parameter.asnumpy(), dtype=np.float64)
