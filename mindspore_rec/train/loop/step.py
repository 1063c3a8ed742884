# SPDX-License-Identifier: Apache-2.0
"""The train step as a cell: a forward pass, a backward pass and an optimizer step."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import nn, ops

from mindspore_rec.common.checks import check_number
from mindspore_rec.train.graph.spread import spread
from mindspore_rec.train.nn.fuse import apply_fuse
from mindspore_rec.train.optim.tables import check_covered

__all__ = ["TrainStep"]


class ScaledLoss(nn.Cell):
    """Computes the loss of a network times `loss_scale`; a train step differentiates the product.

    Args:
        network: cell that returns the loss.
        loss_scale: factor by which the loss is multiplied.

    Inputs:
        The inputs of the network.

    Outputs:
        The scaled loss.
    """

    def __init__(self, network: nn.Cell, loss_scale: float) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss_scale = loss_scale

    def construct(self, *inputs: Any) -> Any:
        """Return the scaled loss."""
        return spread(self.network, inputs) * self.loss_scale


class TrainStep(nn.Cell):
    """Cell that computes the loss and its gradients, and applies one optimizer step.

    Use this cell instead of `mindspore.nn.TrainOneStepCell`. `TrainOneStepCell` computes the
    network once for the loss and again for the gradients. The graph compiler merges equal
    computations only if all operators are pure functions. Lookups that insert and count keys are
    not pure functions, so the tables of a `TrainOneStepCell` would count every key twice.

    Args:
        network: cell that returns the loss.
        optimizer: an optimizer that updates all tables of the network, except frozen tables.
        loss_scale: factor above 0 by which the loss is multiplied in the backward pass. The factor
            must equal the optimizer's `loss_scale`. Default: 1.0.
        fuse: if True, combine several layers of `mindspore_rec.nn` in the network into one
            operator, as `mindspore_rec.nn.fuse` does. A warning is given if the layers cannot be
            combined. If the network is a container, such as an `nn.SequentialCell`, nothing is
            combined and no warning is given. Default: False, which leaves the network unchanged.

    Inputs:
        The inputs of the network.

    Outputs:
        The loss before the update of the parameters, not multiplied by the loss scale.

    Raises:
        TypeError, ValueError: `loss_scale` is not a number > 0; `fuse` is not a bool.
        RuntimeError: the optimizer does not update a table of the network.

    Example:
        >>> import numpy as np
        >>> from mindspore import Tensor
        >>> from mindspore_rec import HashEmbeddingLookup
        >>> from mindspore_rec.optim import LazyAdam
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> class Sum(nn.Cell):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embedding = HashEmbeddingLookup(2, param_init="ones", name="doc.step")
        ...     def construct(self, ids):
        ...         return self.embedding(ids).sum()
        >>> net = Sum()
        >>> step = TrainStep(net, LazyAdam(net.trainable_params(), learning_rate=0.5)).set_train()
        >>> ids = Tensor(np.array([[7, 9]], np.int32))
        >>> [round(float(step(ids)), 4) for _ in range(2)]
        [4.0, 2.0]
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        loss_scale: float = 1.0,
        *,
        fuse: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if check_number("loss_scale", loss_scale) <= 0:
            raise ValueError(f"loss_scale must be > 0, got {loss_scale}")
        check_covered(network, optimizer)
        apply_fuse(network, fuse)
        self.network = network
        self.optimizer = optimizer
        self.loss_scale = float(loss_scale)
        # Differentiate a cell, because differentiating a method of this object would leak memory.
        # MindSpore never frees an object whose method was differentiated, so the network's tables
        # would stay in memory.
        scaled = network if self.loss_scale == 1.0 else ScaledLoss(network, self.loss_scale)
        self.value_and_grad = ms.value_and_grad(scaled, None, optimizer.parameters)

    def construct(self, *inputs: Any) -> Any:
        """Return the loss after the optimizer step has finished."""
        loss, gradients = spread(self.value_and_grad, inputs)
        loss = ops.depend(loss, self.optimizer(gradients))
        return loss if self.loss_scale == 1.0 else loss / self.loss_scale
