# SPDX-License-Identifier: Apache-2.0
"""Cells that combine a network with its loss, for several input columns and one label."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.train.graph.batch_errors import LABEL_HAS_FEWER_AXES, LABEL_HAS_MORE_AXES
from mindspore_rec.train.graph.spread import spread
from mindspore_rec.train.models.label_scale import LabelScale
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.loss import BCEWithLogitsLoss, differentiable

__all__ = ["EvalCell", "LossCell", "label_scale_of", "members_of", "of_members"]

# Losses that compare each prediction with one label. MindSpore broadcasts prediction and label to
# one shape.
_OF_EACH = (
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.HuberLoss,
    nn.L1Loss,
    nn.MAELoss,
    nn.MSELoss,
    nn.RMSELoss,
    nn.SmoothL1Loss,
    BCEWithLogitsLoss,
)


@ops.constexpr
def _check_axes(prediction: int, label: int) -> None:
    """When a graph is compiled, check that prediction and label have the same number of axes.

    With a `raise` inside the graph, MindSpore 2.10 would warn about every graph.
    """
    if prediction > label:
        raise ValueError(LABEL_HAS_FEWER_AXES)
    if prediction < label:
        raise ValueError(LABEL_HAS_MORE_AXES)


class _OfClasses:
    """Base class of cells that, in PyNative mode, reject labels that are not classes of the
    prediction.

    In PyNative mode, MindSpore continues after a failed operator without the operator's result, and
    may crash. In graph mode, MindSpore raises the error of the operator, so no check is needed.
    """

    loss_fn: nn.Cell

    @property
    def checks_classes(self) -> bool:
        """True if classes are checked; the graph compiler reads this property as a constant."""
        if ms.get_context("mode") == ms.GRAPH_MODE:
            return False
        return isinstance(self.loss_fn, (nn.CrossEntropyLoss, nn.SoftmaxCrossEntropyWithLogits))


def _check_classes(prediction: Tensor, label: Tensor, ignored: int | None) -> None:
    if label.ndim >= prediction.ndim:  # the label contains the shares of the classes
        return
    classes, got = prediction.shape[1], label.asnumpy()
    wrong = got[((got >= classes) | (got < -classes)) & (got != ignored)]
    if wrong.size:
        raise ValueError(f"label[index] = {wrong[0]} and class_num = {classes}")


def members_of(network: nn.Cell) -> int:
    """Return a network's number of members; 1 for a cell that is not a `Network`.

    In training, each member returns its own logit.

    Example:
        >>> members_of(nn.Dense(2, 1))
        1
    """
    return network.members if isinstance(network, Network) else 1


def label_scale_of(network: nn.Cell) -> LabelScale | None:
    """Return the scale of a network's numeric labels; None if the network has no such labels.

    Example:
        >>> label_scale_of(nn.Dense(2, 1))
    """
    return network.label_scale if isinstance(network, Network) else None


def of_members(column: Tensor, members: int) -> Tensor:
    """Return labels or weights `[B, ...]`, repeated `members` times along the first axis.

    Example:
        >>> of_members(Tensor([[0.0], [1.0]]), 2).asnumpy().ravel().tolist()
        [0.0, 1.0, 0.0, 1.0]
    """
    return ops.tile(column, (members,) + (1,) * (column.ndim - 1)) if members > 1 else column


class LossCell(_OfClasses, nn.Cell):
    """Network with its loss: `loss_fn(network(*inputs), label)`.

    `mindspore.nn.WithLossCell` takes one input column; a recommendation model has several input
    columns. The loss of a network with several members is the mean of the members' losses.

    Args:
        network: cell that computes the prediction from all columns except the last column.
        loss_fn: cell that computes the loss from prediction and label.

    Inputs:
        columns: the inputs, followed by the label.

    Outputs:
        The loss.

    Raises:
        ValueError: prediction and label have different numbers of axes, and the loss compares each
            prediction with its label. (The mean squared error of `[B, 1]` and `[B]` would compare
            all pairs of rows.)

    Example:
        >>> cell = LossCell(nn.Dense(2, 1), nn.BCEWithLogitsLoss())
    """

    def __init__(self, network: nn.Cell, loss_fn: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_fn = differentiable(loss_fn)
        self.pairs = isinstance(loss_fn, _OF_EACH)
        self.ignored = getattr(loss_fn, "ignore_index", None)  # index of a class that has no loss
        self.members = members_of(network)
        self.sums = self.members > 1 and getattr(loss_fn, "reduction", None) == "sum"

    def construct(self, *columns: Any) -> Any:
        """Return the loss."""
        prediction = spread(self.network, columns[:-1])
        label = of_members(columns[-1], self.members)
        if self.pairs:
            _check_axes(prediction.ndim, label.ndim)
        if self.checks_classes:
            _check_classes(prediction, label, self.ignored)
        loss = self.loss_fn(prediction, label)
        return loss / self.members if self.sums else loss


class EvalCell(_OfClasses, nn.Cell):
    """Network that returns a batch's loss, prediction and label, as `Model`'s metrics require.

    Args:
        network: see `LossCell`.
        loss_fn: see `LossCell`.

    Inputs:
        columns: the inputs, followed by the label.

    Outputs:
        Tuple of the loss, the prediction and the label.

    Example:
        >>> cell = EvalCell(nn.Dense(2, 1), nn.BCEWithLogitsLoss())
    """

    def __init__(self, network: nn.Cell, loss_fn: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_fn = loss_fn
        self.pairs = isinstance(loss_fn, _OF_EACH)
        self.ignored = getattr(loss_fn, "ignore_index", None)  # index of a class that has no loss

    def construct(self, *columns: Any) -> Any:
        """Return loss, prediction and label."""
        prediction = spread(self.network, columns[:-1])
        if self.pairs:
            _check_axes(prediction.ndim, columns[-1].ndim)
        if self.checks_classes:
            _check_classes(prediction, columns[-1], self.ignored)
        return self.loss_fn(prediction, columns[-1]), prediction, columns[-1]
