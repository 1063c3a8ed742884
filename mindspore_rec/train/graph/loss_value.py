# SPDX-License-Identifier: Apache-2.0
"""Read the loss from the output of a train step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mindspore import Tensor

__all__ = ["loss_value"]


def loss_value(outputs: Any) -> float:
    """Return the mean of the loss in a train step's output.

    If the output is a tuple or list, the first element is the loss.

    Args:
        outputs: a Tensor, or a tuple or list with the loss first.

    Returns:
        The loss as a float; NaN if `outputs` is None or empty.

    Example:
        >>> loss_value((Tensor([1.0, 3.0]), Tensor([9.0])))
        2.0
    """
    if isinstance(outputs, (tuple, list)):
        outputs = outputs[0] if outputs else None
    if isinstance(outputs, Tensor):
        outputs = outputs.asnumpy()
    if outputs is None:
        return math.nan
    return float(np.mean(outputs))
