# SPDX-License-Identifier: Apache-2.0
"""LabelScale: mean and standard deviation of labels that are numbers."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

__all__ = ["LabelScale"]


class LabelScale(nn.Cell):
    """Convert a network's outputs to the labels' units, and labels to the scale of the outputs.

    A network that was made from a schema predicts the standardized label, (label - mean) /
    deviation, so that training does not depend on the unit of the label. Labels with two values are
    unchanged.

    Args:
        binary: for each task, whether its label has two values.

    Inputs:
        outputs: float32 Tensor `[B, T]`.

    Outputs:
        float32 Tensor `[B, T]`, computed as `outputs * deviation + mean`.

    Attributes:
        mean: a Parameter `[1, T]`, which starts at 0 and which the optimizer leaves unchanged.
        deviation: a Parameter `[1, T]`, which starts at 1 and which the optimizer leaves unchanged.
        is_set: whether `set` was called; checkpoints contain this flag, the means and the
            deviations.

    Example:
        >>> scale = LabelScale((False, True))
        >>> scale.set([100.0, 0.5], [20.0, 0.5])
        >>> scale(Tensor([[1.5, 3.0]])).asnumpy().tolist()
        [[130.0, 3.0]]
        >>> scale.standard(Tensor([[130.0, 1.0]])).asnumpy().tolist()
        [[1.5, 1.0]]
    """

    def __init__(self, binary: Sequence[bool]) -> None:
        super().__init__()
        self._numbers = ~np.array([binary], bool)
        zeros, ones = np.zeros((1, len(binary)), np.float32), np.ones((1, len(binary)), np.float32)
        self.mean = Parameter(Tensor(zeros), name="mean", requires_grad=False)
        self.deviation = Parameter(Tensor(ones), name="deviation", requires_grad=False)
        self.was_set = Parameter(Tensor(zeros[:, :1]), name="was_set", requires_grad=False)

    @property
    def is_set(self) -> bool:
        """True if `set` was called on this object, or on the object whose state was loaded."""
        return bool(self.was_set.asnumpy()[0, 0])

    def set(self, means: Sequence[float], deviations: Sequence[float]) -> None:
        """Set the mean and the deviation of each task; a deviation of 0 is replaced by 1."""
        spread = np.where(np.asarray(deviations, np.float64) > 0, deviations, 1.0)
        self.mean.set_data(_row(np.where(self._numbers, means, 0.0)))
        self.deviation.set_data(_row(np.where(self._numbers, spread, 1.0)))
        self.was_set.set_data(_row([[1.0]]))

    def construct(self, outputs: Tensor) -> Tensor:
        """Return the outputs in the units of the labels."""
        return outputs * self.deviation + self.mean

    def standard(self, label: Tensor) -> Tensor:
        """Return the standardized labels: the number of standard deviations above the mean."""
        return (label - self.mean) / self.deviation


def _row(values: object) -> Tensor:
    return Tensor(np.asarray(values, np.float32), ms.float32)
