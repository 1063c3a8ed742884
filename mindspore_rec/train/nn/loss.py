# SPDX-License-Identifier: Apache-2.0
"""Losses whose value and gradient are computed in one pass."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.train.nn.fused.layer import may_fuse
from mindspore_rec.train.nn.fused.library import has_onednn
from mindspore_rec.train.nn.fused.loss import LogisticLoss

__all__ = ["BCEWithLogitsLoss"]


class BCEWithLogitsLoss(nn.LossBase):
    r"""Binary cross-entropy between labels and the sigmoid of logits, as in MindSpore.

    .. math::
        \ell(x, y) = -\operatorname*{mean}_i\; \left[ y_i \log \sigma(x_i)
        + (1 - y_i) \log (1 - \sigma(x_i)) \right]

    On the CPU, one operator computes the loss and its gradient. The gradient is
    :math:`\sigma(x_i) - y_i`, divided by the number of logits if `reduction` is 'mean'; the
    backward pass scales this gradient. The loss is summed in float64, in an order that does not
    depend on the number of threads. The cell uses `mindspore.nn.BCEWithLogitsLoss` instead of the
    operator if there is a `weight` or `pos_weight`, the reduction is 'none', an input is not
    float32, the device is not the CPU, `mindspore.export` runs, or `MINDSPORE_REC_ONEDNN` is 'off'.

    The operator has first derivatives only; a second derivative raises `NotImplementedError`.

    Args:
        reduction: 'mean', 'sum' or 'none'. Default: 'mean'.
        weight: Tensor that scales the loss of each element; the weight's shape must broadcast to
            the shape of `input`. Default: none.
        pos_weight: Tensor that scales the losses of positive labels. Default: none.

    Inputs:
        - **input** (Tensor): logits of any shape, float32 or float16; on devices other than the
          CPU also bfloat16.
        - **target** (Tensor): labels of the same shape as `input`, usually in [0, 1].

    Outputs:
        Tensor of shape `()`, or of the shape of `input` for reduction 'none'. If there are no
        logits, the mean is NaN and the sum is 0.

    Raises:
        TypeError: a weight is a Parameter, or an input is not a Tensor of a supported dtype.
        ValueError: the reduction is unknown, or the shapes of the inputs differ.
        RuntimeError: the shapes of the inputs differ and are known only when the graph runs; or an
            input is bfloat16 on the CPU in PyNative mode.
        NotImplementedError: a second derivative is computed.

    Supported platforms:
        ``CPU`` ``GPU`` ``Ascend``

    Example:
        >>> loss = BCEWithLogitsLoss()
        >>> round(float(loss(Tensor([[0.0], [2.0]]), Tensor([[1.0], [1.0]])).asnumpy()), 4)
        0.41
    """

    def __init__(
        self,
        reduction: str = "mean",
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(check_one_of("reduction", reduction, ("mean", "sum", "none")))
        self.plain = differentiable(nn.BCEWithLogitsLoss(reduction, weight, pos_weight))
        self.fused: Any = None
        if weight is None and pos_weight is None and reduction != "none" and has_onednn():
            self.fused = LogisticLoss(reduction == "mean")

    @property
    def is_fused(self) -> bool:
        """True if one operator computes float32 losses; the value is fixed in a compiled graph."""
        return self.fused is not None and may_fuse([self])

    def construct(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        if self.is_fused:
            if _is_float32(input) and _is_float32(target) and input.shape == target.shape:
                return ops.reshape(self.fused(input, target)[0], ())
        return self.plain(input, target)


def _is_float32(x: Any) -> bool:
    """Return whether `x` is a float32 Tensor."""
    return isinstance(x, Tensor) and x.dtype == ms.float32


class _MeanOfLosses(nn.Cell):
    """Mean of a `mindspore.nn.BCEWithLogitsLoss` over all elements."""

    def __init__(self, loss: nn.BCEWithLogitsLoss) -> None:
        super().__init__()
        self.each = nn.BCEWithLogitsLoss("none", loss.weight, loss.pos_weight)

    def construct(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return self.each(input, target).mean()


def differentiable(loss: nn.Cell) -> nn.Cell:
    """Return a loss whose gradient is right for batches of any size.

    In PyNative mode, MindSpore 2.10 computes a wrong gradient of the mean binary cross-entropy. The
    gradient is divided by the number of elements of the first batch, even if the current batch has
    a different size.

    Args:
        loss: any loss.

    Returns:
        The loss itself; but in PyNative mode, a `mindspore.nn.BCEWithLogitsLoss` with reduction
        'mean' is replaced by a cell that computes the same loss with the correct gradient.

    Example:
        >>> differentiable(nn.MSELoss())
        MSELoss()
    """
    if ms.get_context("mode") != ms.PYNATIVE_MODE or type(loss) is not nn.BCEWithLogitsLoss:
        return loss
    return _MeanOfLosses(loss) if loss.reduction == "mean" else loss
