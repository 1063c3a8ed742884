# SPDX-License-Identifier: Apache-2.0
"""RowInitializer: the distribution of initial values, from MindSpore's initializers."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore.common import initializer as ms_init

from mindspore_rec.common.checks import check_number

LEGAL = "a number, or 'normal', 'truncated_normal', 'uniform', 'xavier_uniform', 'zeros', 'ones'"


@dataclass(frozen=True)
class RowInitializer:
    """Distribution from which the native core draws initial values of rows.

    `constant`: a. `uniform`: [a, b). `normal`: mean a, standard deviation b. `truncated_normal`:
    the normal distribution, truncated to [lower, upper]; both bounds are in standard deviations.
    """

    kind: str
    a: float = 0.0
    b: float = 0.0
    lower: float = -2.0
    upper: float = 2.0

    @property
    def unknown_value(self) -> float:
        """Value of a key without a row: the constant of a constant initializer, otherwise 0."""
        return self.a if self.kind == "constant" else 0.0

    def native_arguments(self) -> dict[str, Any]:
        """Return this distribution as keyword arguments of `_native.Table`."""
        return {
            "init_kind": self.kind,
            "init_a": self.a,
            "init_b": self.b,
            "init_lower": self.lower,
            "init_upper": self.upper,
        }


def row_initializer(
    initializer: str | float | ms_init.Initializer, *, fan_in: int, fan_out: int, argument: str
) -> RowInitializer:
    """Convert a MindSpore initializer to a `RowInitializer`.

    The defaults are the same as in MindSpore: normal has standard deviation 0.01, and uniform is
    [-0.07, 0.07). Truncated normal has standard deviation 0.01 and is truncated at two standard
    deviations. Xavier uniform has gain 1.

    Args:
        initializer: a number, the name of an initializer, or an `Initializer` object of a supported
            kind.
        fan_in: number of inputs, for Xavier uniform.
        fan_out: number of outputs, for Xavier uniform.
        argument: name of the caller's argument, for error messages.

    Raises:
        TypeError: `initializer` has an unsupported type.
        ValueError: the name or the kind of the Initializer is unknown, or a number is not finite
            or out of range.

    Example:
        >>> row_initializer("normal", fan_in=16, fan_out=16, argument="initializer")
        RowInitializer(kind='normal', a=0.0, b=0.01, lower=-2.0, upper=2.0)
    """
    if isinstance(initializer, numbers.Real):
        return RowInitializer("constant", check_number(argument, initializer))
    if isinstance(initializer, str):
        return _from_name(initializer, fan_in, fan_out, argument)
    if isinstance(initializer, ms_init.Initializer):
        return _checked(_from_object(initializer, fan_in, fan_out, argument), argument)
    raise TypeError(f"{argument} must be {LEGAL}, or such an Initializer, got {initializer!r}")


def _checked(init: RowInitializer, argument: str) -> RowInitializer:
    if not np.isfinite([init.a, init.b, init.lower, init.upper]).all():
        raise ValueError(f"{argument} must have finite numbers, got {init}")
    if init.kind == "uniform" and init.b < init.a:
        raise ValueError(f"{argument} must have a scale >= 0, got {init}")
    if init.kind in ("normal", "truncated_normal") and init.b < 0:
        raise ValueError(f"{argument} must have a standard deviation >= 0, got {init}")
    if init.lower >= init.upper:
        raise ValueError(f"{argument} must be cut below before above, got {init}")
    return init


def _xavier(gain: float, fan_in: int, fan_out: int) -> RowInitializer:
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return RowInitializer("uniform", -bound, bound)


def _from_name(name: str, fan_in: int, fan_out: int, argument: str) -> RowInitializer:
    key = name.lower().replace("_", "")
    if key == "normal":
        return RowInitializer("normal", 0.0, 0.01)
    if key == "truncatednormal":
        return RowInitializer("truncated_normal", 0.0, 0.01)
    if key == "uniform":
        return RowInitializer("uniform", -0.07, 0.07)
    if key == "xavieruniform":
        return _xavier(1.0, fan_in, fan_out)
    if key in ("zeros", "zero"):
        return RowInitializer("constant", 0.0)
    if key in ("ones", "one"):
        return RowInitializer("constant", 1.0)
    raise ValueError(f"{argument} must be {LEGAL}, got {name!r}")


def _from_object(
    init: ms_init.Initializer, fan_in: int, fan_out: int, argument: str
) -> RowInitializer:
    if isinstance(init, ms_init.Normal):
        return RowInitializer("normal", float(init.mean), float(init.sigma))
    if isinstance(init, ms_init.TruncatedNormal):
        return RowInitializer(
            "truncated_normal", float(init.mean), float(init.sigma), float(init.a), float(init.b)
        )
    if isinstance(init, ms_init.Uniform):
        return RowInitializer("uniform", -float(init.scale), float(init.scale))
    if isinstance(init, ms_init.XavierUniform):
        return _xavier(float(init.gain), fan_in, fan_out)
    if isinstance(init, ms_init.Zero):
        return RowInitializer("constant", 0.0)
    if isinstance(init, ms_init.One):
        return RowInitializer("constant", 1.0)
    if isinstance(init, ms_init.Constant):
        return RowInitializer("constant", float(init.value))
    raise ValueError(
        f"{argument} must be {LEGAL}, or such an Initializer, got {type(init).__name__}"
    )
