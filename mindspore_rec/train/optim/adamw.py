# SPDX-License-Identifier: Apache-2.0
"""AdamW: Adam with weight decay that is separate from the gradient."""

from __future__ import annotations

from typing import Any

from mindspore import ops

from mindspore_rec.train.optim.adam import AdamBase

__all__ = ["AdamW"]


class AdamW(AdamBase):
    r"""Adam with decoupled weight decay and bias correction.

    .. math::
        w &= w - lr \cdot wd \cdot w \\
        m &= \beta_1 m + (1 - \beta_1) g \\
        v &= \beta_2 v + (1 - \beta_2) g^2 \\
        w &= w - lr \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + eps}

    In a table, rows outside the batch do not decay, and keep their values and moments. The number
    :math:`t` is the optimizer's step number. `mindspore.nn.AdamWeightDecay` differs: it has no bias
    correction. Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
    algorithm 2. The schedule multiplier of the algorithm is the learning rate, as in PyTorch and
    `mindspore.mint.optim.AdamW`.

    Args:
        params: parameters of layers and tables, such as `net.trainable_params()`, or parameter
            groups.
        learning_rate: number, Tensor, iterable or `LearningRateSchedule`, >= 0. Default: 1e-3.
        beta1: decay of the first moment, in [0, 1). Default: 0.9.
        beta2: decay of the second moment, in [0, 1). Default: 0.999.
        eps: number > 0 that is added to the square root. Default: 1e-8.
        weight_decay: number >= 0, or a Cell that maps the step to a number. Default: 0.01.
        loss_scale: factor > 0 by which the loss was multiplied. Default: 1.0.
        clip_global_norm: upper limit > 0 of the norm of all gradients together; None for no
            clipping. Default: None.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument is out of its range.

    Example:
        >>> from mindspore import nn
        >>> import mindspore_rec.optim as optim
        >>> optimizer = optim.AdamW(nn.Dense(3, 1).trainable_params(), weight_decay=0.05)
    """

    decouples = True
    native_dense = True

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: Any = 0.01,
        loss_scale: float = 1.0,
        clip_global_norm: float | None = None,
    ) -> None:
        super().__init__(
            params,
            learning_rate,
            beta1,
            beta2,
            eps,
            False,
            weight_decay,
            loss_scale,
            clip_global_norm,
            "adamw",
        )
        self._assign_sub = ops.AssignSub()

    def dense_step(self, j: int, w: Any, g: Any, lr: Any, decay: Any, prepared: Any) -> Any:
        """Update a dense parameter."""
        rate, root = prepared
        shrunk = () if decay is None else self._assign_sub(w, (lr * decay) * w)
        return shrunk, self.adam(j, w, g, lr * rate, self._eps * root)
