# SPDX-License-Identifier: Apache-2.0
"""Common parts of the cross networks: base class and initial values of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mindspore import Parameter, Tensor
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.inputs import (
    MOST_UNITS,
    check_inputs,
    check_rows,
    check_widths,
    join,
)
from mindspore_rec.train.nn.fused.layer import FusedLayer

__all__ = ["CrossLayers", "glorot_normal", "zeros"]

_MOST_LAYERS = 64


class CrossLayers(FusedLayer):
    """Base class of the cross networks, in which every layer has the width of the input.

    A subclass defines `plain`, which computes the output with MindSpore's own operators.

    Args:
        in_features: width of the input, or the widths of several inputs.
        layers: number of cross layers, 1 to 64.
        compute_dtype: see `FusedLayer`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
    """

    def __init__(self, in_features: int | Sequence[int], layers: int, compute_dtype: str) -> None:
        super().__init__(compute_dtype)
        self.in_features = check_widths("in_features", in_features, MOST_UNITS)
        self.layers = check_int("layers", layers, 1, _MOST_LAYERS)
        self.out_features = sum(self.in_features)

    def construct(self, *inputs: Tensor) -> Tensor:
        """Return the last layer's output, float32 `[B, out_features]`."""
        check_inputs(inputs, self.in_features)
        if self.is_fused:
            check_rows(inputs, self.in_features)
            return self._run_fused((*inputs, *self.learned()))
        return self.plain(join(inputs, self.in_features))

    def plain(self, x: Tensor) -> Tensor:
        """Return the output of the last layer, computed with MindSpore's own operators.

        Args:
            x: the joined inputs, float32 `[B, out_features]`.
        """
        raise NotImplementedError


def glorot_normal(name: str, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Parameter:
    """Return a Parameter with the normal initialization of Glorot & Bengio (2010).

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
