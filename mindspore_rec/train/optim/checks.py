# SPDX-License-Identifier: Apache-2.0
"""Checks of the optimizers' arguments; every message names the argument and its legal range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor
from mindspore.nn import Cell
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from mindspore_rec.common.checks import check_number

__all__ = [
    "check_flag",
    "check_groups",
    "check_hyperparameter",
    "check_learning_rate",
    "check_loss_scale",
    "check_weight_decay",
]


def check_hyperparameter(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return an optimizer's constant as a float, after the checks of `check_number`.

    Raises:
        TypeError: `value` is not a number. The message names the type and not the value, which may
            be a large Tensor.
        ValueError: `value` is NaN, infinite or outside the range.

    Example:
        >>> check_hyperparameter("beta1", 0.9, low=0, high=1, high_open=True)
        0.9
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return check_number(name, value, low=low, high=high, low_open=low_open, high_open=high_open)


def check_flag(name: str, value: Any) -> bool:
    """Return `value` if it is a bool, otherwise raise TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {type(value).__name__}")
    return value


def check_learning_rate(value: Any, name: str = "learning_rate") -> Any:
    """Return a learning rate in a form that `mindspore.nn.Optimizer` accepts.

    Args:
        value: a number, a 0-d or 1-d Tensor or array, an iterable of numbers (one per step), or a
            `LearningRateSchedule`.
        name: the argument's name, for the error message.

    Raises:
        TypeError: `value` has an unsupported type.
        ValueError: a rate is negative, NaN or infinite, or `value` contains no rate or has too many
            axes.
    """
    if isinstance(value, LearningRateSchedule):
        return value
    if isinstance(value, Real):
        return check_hyperparameter(name, value, low=0)
    if isinstance(value, Tensor):
        array = value.astype("float32").asnumpy()
    elif isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Cell):
        array = np.array(
            [check_hyperparameter(f"{name}[{i}]", v, low=0) for i, v in enumerate(value)]
        )
    else:
        raise TypeError(
            f"{name} must be a number, a Tensor, an iterable of numbers or a LearningRateSchedule, "
            f"got {type(value).__name__}"
        )
    if array.ndim > 1 or array.size == 0:
        raise ValueError(
            f"{name} must have no axis, or one with a rate for each step, got shape {array.shape}"
        )
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        raise ValueError(f"{name} must be finite and >= 0, got {array[bad].flat[0]}")
    return Tensor(array.astype(np.float32))


def check_weight_decay(value: Any, name: str = "weight_decay") -> Any:
    """Check that a weight decay is a finite number >= 0 or a Cell, and return the weight decay.

    Raises:
        TypeError: `value` is neither a number nor a Cell.
        ValueError: the number is negative, NaN or infinite.
    """
    if isinstance(value, Cell):
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number or a Cell, got {type(value).__name__}")
    return check_hyperparameter(name, value, low=0)


def check_loss_scale(value: Any) -> float:
    """Check that a loss scale is a finite number > 0, and return the loss scale."""
    return check_hyperparameter("loss_scale", value, low=0, low_open=True)


def check_groups(params: Any) -> list[Any]:
    """Check `params`, and return a list of Parameters or of parameter groups.

    Args:
        params: an optimizer's argument `params`, an iterable of Parameters or of groups. A
            group is a dict with the key "params" and optionally "lr", "weight_decay" and
            "grad_centralization", or a dict with the key "order_params".

    Raises:
        TypeError: `params` contains neither Parameters nor groups, or contains both, or a setting
            in a group is of the wrong type.
        ValueError: `params` is empty, a group has neither "params" nor "order_params", or a setting
            in a group is out of range.
    """
    if isinstance(params, Parameter | str | bytes) or not isinstance(params, Iterable):
        raise TypeError(
            f"params must be an iterable of Parameters or of groups, got {type(params).__name__}"
            f"{_table_remedy([params])}"
        )
    items = list(params)
    if not items:
        raise ValueError("params must hold at least one Parameter or group, got none")
    if all(isinstance(item, Parameter) for item in items):
        return items
    if not all(isinstance(item, dict) for item in items):
        kinds = sorted({type(item).__name__ for item in items})
        raise TypeError(
            f"params must hold Parameters only or groups only, got {', '.join(kinds)}"
            f"{_table_remedy(items)}"
        )
    return [_group(i, item) for i, item in enumerate(items)]


def _table_remedy(items: list[Any]) -> str:
    has_table = any(hasattr(item, "anchor") for item in items)
    return ": the Parameter of a table is table.anchor" if has_table else ""


def _group(index: int, group: dict[str, Any]) -> dict[str, Any]:
    checked = dict(group)
    for key in ("params", "order_params"):
        if key in checked and isinstance(checked[key], Iterable):
            checked[key] = list(checked[key])
            others = [item for item in checked[key] if not isinstance(item, Parameter)]
            if others:
                raise TypeError(
                    f"params[{index}]['{key}'] must hold Parameters only, "
                    f"got {type(others[0]).__name__}{_table_remedy(others)}"
                )
    if "params" not in checked and "order_params" not in checked:
        raise ValueError(f"params[{index}] must have the key 'params', got {sorted(group)}")
    if "lr" in checked:
        checked["lr"] = check_learning_rate(checked["lr"], f"params[{index}]['lr']")
    if "weight_decay" in checked:
        name = f"params[{index}]['weight_decay']"
        checked["weight_decay"] = check_weight_decay(checked["weight_decay"], name)
    return checked
