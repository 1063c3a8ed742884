# SPDX-License-Identifier: Apache-2.0
"""Weighted loss of a schema's labels, and cells that combine a network with its loss."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.graph.spread import spread
from mindspore_rec.train.loop.cells import label_scale_of, members_of, of_members
from mindspore_rec.train.nn.loss import BCEWithLogitsLoss, differentiable

__all__ = ["SchemaEvalCell", "SchemaLoss", "SchemaLossCell", "loss_of"]


def loss_of(schema: Schema) -> nn.Cell:
    """Return the loss of a schema's labels.

    The loss of a label with two values is the log loss, computed from a logit. The loss of a label
    that is a number is half of the squared error, where the unit of the error is the label's
    standard deviation. The loss of a row is the mean loss of its labels, multiplied by the row's
    weight.

    Raises:
        ValueError: the schema has no label.
    """
    if not schema.labels:
        raise ValueError("the schema must have a label, a LabelColumn, to train a network")
    if schema.weight is None and all(label.binary for label in schema.labels):
        return BCEWithLogitsLoss()
    return SchemaLoss(schema)


class SchemaLoss(nn.Cell):
    r"""Mean loss of a batch: labels have two values or are numbers, and rows may have weights.

    .. math::
        L = \frac{1}{B} \sum_b w_b \frac{1}{T} \sum_t l_t(z_{bt}, y_{bt})

    Args:
        schema: the schema; the kind of each label determines :math:`l_t`.

    Inputs:
        prediction: float32 Tensor `[B, T]`. For a label with two values, the prediction is a logit.
            For a label that is a number, the prediction is the distance from the mean in standard
            deviations.
        label: float32 Tensor `[B, T]`. A label with two values is 0 or 1. A label that is a number
            is given as the distance from the mean in standard deviations.
        weight: float32 Tensor `[B, 1]`; omit if all weights are 1.

    Outputs:
        float32 Tensor, the loss.
    """

    reduction = "mean"

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        binary = np.array([[label.binary for label in schema.labels]])
        self.all_binary, self.none_binary = bool(binary.all()), not binary.any()
        self.binary = Tensor(binary.astype(np.float32), ms.float32)

    def construct(self, prediction: Tensor, label: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss."""
        if self.all_binary:
            losses = _log_losses(prediction, label)
        elif self.none_binary:
            losses = 0.5 * ops.square(prediction - label)
        else:
            logs, squares = _log_losses(prediction, label), 0.5 * ops.square(prediction - label)
            losses = self.binary * logs + (1.0 - self.binary) * squares
        return losses.mean() if weight is None else (losses * weight).mean()


def _log_losses(logit: Tensor, label: Tensor) -> Tensor:
    return ops.relu(logit) - logit * label + ops.log1p(ops.exp(-ops.abs(logit)))


class SchemaLossCell(nn.Cell):
    """Network with its loss.

    The last array of a batch is the label. If rows have weights, the array before the label
    contains the weights.

    Args:
        network: cell that computes the predictions from the first arrays of a batch.
        loss_fn: the loss that `loss_of` returns.
        schema: the schema.

    Inputs:
        arrays: the network's inputs, `weight` if rows have weights, and `label`.

    Outputs:
        float32 Tensor, the loss.
    """

    def __init__(self, network: nn.Cell, loss_fn: nn.Cell, schema: Schema) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_fn = differentiable(loss_fn)
        # If negatives were thinned, rows have weights, even if the schema has no weight column.
        self.weighted = SchemaLoss(schema)
        self.inputs = len(schema.inputs)
        self.members = members_of(network)
        self.label_scale = label_scale_of(network)

    def construct(self, *arrays: Any) -> Tensor:
        """Return the loss."""
        prediction = spread(self.network, arrays[: self.inputs])
        label = arrays[-1] if self.label_scale is None else self.label_scale.standard(arrays[-1])
        label = of_members(label, self.members)
        if len(arrays) == self.inputs + 1:
            return self.loss_fn(prediction, label)
        return self.weighted(prediction, label, of_members(arrays[self.inputs], self.members))


class SchemaEvalCell(nn.Cell):
    """Network that returns loss, prediction, label and, if present, group and weight.

    Args:
        network: cell that computes the predictions from the first arrays of a batch.
        loss_fn: the loss that `loss_of` returns.
        schema: the schema.
        has_group: whether the second-to-last array is the group.

    Inputs:
        arrays: the network's inputs; the weights, if rows have weights; the group, if `has_group`
            is True; and the label.

    Outputs:
        Tuple of loss, prediction and label, followed by the group if `has_group` is True, and by
        the weight if rows have weights.
    """

    def __init__(self, network: nn.Cell, loss_fn: nn.Cell, schema: Schema, has_group: bool) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_fn = loss_fn
        # If negatives were thinned, rows have weights, even if the schema has no weight column.
        self.weighted = SchemaLoss(schema)
        self.inputs = len(schema.inputs)
        self.groups = int(has_group)
        self.label_scale = label_scale_of(network)

    def construct(self, *arrays: Any) -> Any:
        """Return loss, prediction, label, group and weight."""
        output = spread(self.network, arrays[: self.inputs])
        label = standard = arrays[-1]
        prediction = output
        if self.label_scale is not None:
            prediction, standard = self.label_scale(output), self.label_scale.standard(label)
        groups = arrays[len(arrays) - 1 - self.groups : -1]
        if len(arrays) == self.inputs + self.groups + 1:
            return (self.loss_fn(output, standard), prediction, label, *groups)
        weight = arrays[self.inputs]
        loss = self.weighted(output, standard, weight)
        return (loss, prediction, label, *groups, weight)

    def names(self, outputs: int) -> tuple[str, ...]:
        """Return the names of the first `outputs` outputs."""
        groups = ("group",) * self.groups
        return ("loss", "prediction", "label", *groups, "weight")[:outputs]
