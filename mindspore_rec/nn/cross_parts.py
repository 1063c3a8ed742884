# SPDX-License-Identifier: Apache-2.0
"""Limits and first values of the cross networks' parameters."""

from __future__ import annotations

import math

from mindspore import Parameter
from mindspore.common.initializer import Normal, initializer

__all__ = ["MOST_LAYERS", "MOST_UNITS", "glorot_normal", "zeros"]

MOST_UNITS = 1 << 20
"""Greatest width of an input."""

MOST_LAYERS = 64
"""Greatest number of cross layers."""


def glorot_normal(name: str, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Parameter:
    """Return a Parameter with the normal first values of Glorot & Bengio (2010).

    Example:
        >>> glorot_normal("weight", (2, 3), 3, 1).shape
        (2, 3)
    """
    return Parameter(initializer(Normal(math.sqrt(2 / (fan_in + fan_out))), shape), name=name)


def zeros(name: str, shape: tuple[int, ...]) -> Parameter:
    """Return a Parameter of zeros.

    Example:
        >>> zeros("bias", (2,)).asnumpy().tolist()
        [0.0, 0.0]
    """
    return Parameter(initializer("zeros", shape), name=name)
