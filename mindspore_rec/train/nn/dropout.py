# SPDX-License-Identifier: Apache-2.0
"""SeededDropout: dropout that is the same in two runs with the same seed."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.checks import check_int, check_number

__all__ = ["SeededDropout", "check_rate"]


class SeededDropout(nn.Cell):
    """Dropout with masks that are drawn in advance; each row of a batch uses the next mask.

    This cell replaces `mindspore.nn.Dropout`. The dropout kernel of MindSpore 2.10 for the CPU
    draws from one generator in several threads, so that two runs with the same seed differ. Drawing
    masks in advance is also faster than drawing a new mask in each step. The masks take 16 KiB of
    memory per unit.

    Args:
        width: number of units per row, at least 1.
        rate: probability that a unit is dropped in training, in [0, 1); the remaining units are
            multiplied by 1 / (1 - rate).

    Inputs:
        x: float32 Tensor `[B, width]`.

    Outputs:
        float32 Tensor `[B, width]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.train.nn.dropout import SeededDropout
        >>> ms.set_seed(1)
        >>> y = SeededDropout(4, 0.5).set_train()(Tensor(np.ones((100, 4), np.float32))).asnumpy()
        >>> sorted(set(y.ravel().tolist()))
        [0.0, 2.0]
    """

    # Most batches have fewer rows than there are masks. The number of masks is prime, so that any
    # stride visits every mask before any mask repeats.
    masks = 4093
    stride = 1237

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        width = check_int("width", width, 1, 1 << 20)
        rate = check_rate("rate", rate)
        # mindspore.set_seed seeds NumPy's global generator.
        random = np.random.default_rng(np.random.randint(1 << 31))  # noqa: NPY002
        kept = random.random((self.masks, width), np.float32) >= rate
        self.scaled = Tensor(kept.astype(np.float32) / np.float32(1 - rate))
        self.used = Parameter(Tensor(np.zeros(1, np.int32)), name="used", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        """In training, zero some units and scale the remaining units; in evaluation, return x."""
        if not self.training:
            return x
        used = self.take()
        # a cumulative sum counts rows even if their number is known only when the graph runs
        row = ops.cast(ops.cumsum(ops.ones_like(x[:, 0]), 0), ms.int32)
        return x * ops.gather(self.scaled, (row + used) % self.masks, 0)

    def take(self) -> Tensor:
        """Return n, int32 `[1]`, for the next batch: row i uses mask (n + 1 + i) % `masks`."""
        used = (self.used + self.stride) % self.masks
        ops.assign(self.used, used)
        return used


def check_rate(argument: str, value: float) -> float:
    """Return `value` as a float; raise an error if `value` is not in [0, 1).

    Raises:
        TypeError, ValueError: `value` is not a number in [0, 1).

    Example:
        >>> check_rate("dropout", 0)
        0.0
    """
    if not 0 <= check_number(argument, value) < 1:
        raise ValueError(f"{argument} must be in [0, 1), got {value}")
    return float(value)
