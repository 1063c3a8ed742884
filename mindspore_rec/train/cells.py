# SPDX-License-Identifier: Apache-2.0
"""A network with its loss, over batches of several input columns and one label."""

from __future__ import annotations

from typing import Any

from mindspore import nn

__all__ = ["EvalCell", "LossCell"]


class LossCell(nn.Cell):
    """`loss_fn(network(*inputs), label)`.

    `mindspore.nn.WithLossCell` takes one input column; a recommendation model has several.

    Args:
        network: from all columns but the last to a prediction.
        loss_fn: from prediction and label to the loss.

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
        self.loss_fn = loss_fn

    def construct(self, *columns: Any) -> Any:
        """The loss."""
        return self.loss_fn(self.network(*columns[:-1]), columns[-1])


class EvalCell(nn.Cell):
    """Loss, prediction and label of a batch, as `Model`'s metrics take them.

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
        """Loss, prediction, label."""
        prediction = self.network(*columns[:-1])
        return self.loss_fn(prediction, columns[-1]), prediction, columns[-1]
