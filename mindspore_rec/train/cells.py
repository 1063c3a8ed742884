# SPDX-License-Identifier: Apache-2.0
"""Cells of a network with its loss, for batches of several input columns and one label."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from mindspore_rec.graph.spread import spread
from mindspore_rec.nn.loss import differentiable

__all__ = ["EvalCell", "LossCell"]


class LossCell(nn.Cell):
    """Network with its loss: `loss_fn(network(*inputs), label)`.

    `mindspore.nn.WithLossCell` takes one input column; a recommendation model has several.

    Args:
        network: computes the prediction from all columns but the last.
        loss_fn: computes the loss from prediction and label.

    Inputs:
        columns: the inputs, then the label.

    Outputs:
        The loss.

    Example:
        >>> cell = LossCell(nn.Dense(2, 1), nn.BCEWithLogitsLoss())
    """

    def __init__(self, network: nn.Cell, loss_fn: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_fn = differentiable(loss_fn)

    def construct(self, *columns: Any) -> Any:
        """Return the loss."""
        return self.loss_fn(spread(self.network, columns[:-1]), columns[-1])


class EvalCell(nn.Cell):
    """Network that returns loss, prediction and label of a batch, as the metrics of `Model` take.

    Args:
        network: as for `LossCell`.
        loss_fn: as for `LossCell`.

    Inputs:
        columns: the inputs, then the label.

    Outputs:
        Tuple of the loss, the prediction and the label.

    Example:
        >>> cell = EvalCell(nn.Dense(2, 1), nn.BCEWithLogitsLoss())
    """

    def __init__(self, network: nn.Cell, loss_fn: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_fn = loss_fn

    def construct(self, *columns: Any) -> Any:
        """Return loss, prediction and label."""
        prediction = spread(self.network, columns[:-1])
        return self.loss_fn(prediction, columns[-1]), prediction, columns[-1]
