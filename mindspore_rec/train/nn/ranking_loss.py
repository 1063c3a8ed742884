# SPDX-License-Identifier: Apache-2.0
"""Losses of rankings: softmax over all items or over sampled items, and BPR."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_number
from mindspore_rec.train.nn.join import join_columns
from mindspore_rec.train.nn.loss import BCEWithLogitsLoss

__all__ = ["BPRLoss", "SampledSoftmaxLoss", "SoftmaxLoss"]

_NEVER = -1e30  # logit of an item that must have no probability


class SoftmaxLoss(nn.Cell):
    r"""Cross entropy of a softmax over all items; one of the items is the row's target.

    .. math::
        \ell = -\operatorname*{mean}_b\; \log
        \frac{\exp(s_{b, t_b} / \tau)}{\sum_{i=1}^{I} \exp(s_{b, i} / \tau)}, \qquad
        s_{b, i} = \langle u_b, v_i \rangle + c_i

    The cell computes all scores ``[B, I]``, so it suits catalogues of up to about 100,000 items.
    For more items, see :class:`SampledSoftmaxLoss`.

    Args:
        temperature: the number :math:`\tau` by which scores are divided. Default: 1.0.

    Inputs:
        - **user** (Tensor): float32 ``[B, dim]``, a vector per row.
        - **item** (Tensor): float32 ``[I, dim]``, the vectors of all items.
        - **target** (Tensor): int32 or int64 ``[B]``, the row's item, in ``[0, I)``.
        - **bias** (Tensor): float32 ``[I]``, the numbers :math:`c_i`. Default: None.

    Outputs:
        float32 Tensor of shape ``()``; not finite if there are no rows.

    Raises:
        TypeError, ValueError: the temperature is not a positive number.

    Supported platforms:
        ``CPU``

    Example:
        >>> loss = SoftmaxLoss()
        >>> item = Tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> value = loss(Tensor([[2.0, 0.0]]), item, Tensor([0], ms.int32))
        >>> round(float(value.asnumpy()), 4)
        0.1269
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.scale = 1.0 / check_number("temperature", temperature, low=0.0, low_open=True)

    def construct(self, user: Tensor, item: Tensor, target: Tensor, bias: Any = None) -> Tensor:
        """Return the loss."""
        logits = ops.matmul(user, ops.transpose(item, (1, 0)))
        if bias is not None:
            logits = logits + bias
        logits = logits * self.scale
        positive = ops.gather_elements(logits, 1, ops.reshape(target, (-1, 1)))
        return ops.mean(_log_sum(logits) - ops.reshape(positive, (-1,)))


class SampledSoftmaxLoss(nn.Cell):
    r"""Cross entropy of a softmax over the target and sampled items, corrected by log-Q.

    .. math::
        \ell = -\operatorname*{mean}_b\; \log \frac{\exp(z_{b, t_b})}
        {\exp(z_{b, t_b}) + \sum_{j \in N_b,\, j \ne t_b} \exp(z_{b, j})}, \qquad
        z_{b, i} = \langle u_b, v_i \rangle / \tau - \log Q(i)

    The correction removes the effect of the sampling probability :math:`Q(i)` from the learned
    scores. Without the log-Q correction, the scores of frequent items would be too low. Multiplying
    all probabilities by one factor has no effect. Negatives may be drawn by
    `mindspore_rec.data.NegativeSampler`, or may be the targets of other rows of the batch.

    Source: Bengio & Senécal 2008, Adaptive importance sampling to accelerate training of a neural
    probabilistic language model (https://doi.org/10.1109/TNN.2007.912312). For negatives that are
    the targets of other rows, see Yi et al. 2019, Sampling-bias-corrected neural modeling for large
    corpus item recommendations (https://doi.org/10.1145/3298689.3346996).

    Args:
        temperature: the number :math:`\tau` by which dot products are divided. Default: 1.0.

    Inputs:
        - **user** (Tensor): float32 ``[B, dim]``, a vector per row.
        - **target** (Tensor): float32 ``[B, dim]``, the vectors of the rows' targets.
        - **negative** (Tensor): float32 ``[N, dim]``, items that all rows share; or ``[B, N,
          dim]``, items of each row.
        - **target_id** (Tensor): integers ``[B]``. Default: None.
        - **negative_id** (Tensor): integers ``[N]`` or ``[B, N]``. A negative whose id equals the
          id of the row's target is ignored. Default: None, which means that all negatives count.
        - **target_log_q** (Tensor): float32 ``[B]``, :math:`\log Q` of the targets. Default: None.
        - **negative_log_q** (Tensor): float32 ``[N]`` or ``[B, N]``. Default: None, which means no
          correction.

    Outputs:
        float32 Tensor of shape ``()``; not finite if there are no rows.

    Raises:
        TypeError, ValueError: the temperature is not a positive number; only one of `target_id` and
            `negative_id` is passed; or only one of `target_log_q` and `negative_log_q` is passed.

    Supported platforms:
        ``CPU``

    Example:
        >>> loss = SampledSoftmaxLoss()
        >>> user, item = Tensor([[2.0, 0.0], [0.0, 1.0]]), Tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> ids = Tensor([4, 9], ms.int64)
        >>> value = loss(user, item, item, ids, ids)  # negatives are the targets of other rows
        >>> round(float(value.asnumpy()), 4)
        0.2201
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.scale = 1.0 / check_number("temperature", temperature, low=0.0, low_open=True)
        self.join = join_columns(2)

    def construct(
        self,
        user: Tensor,
        target: Tensor,
        negative: Tensor,
        target_id: Any = None,
        negative_id: Any = None,
        target_log_q: Any = None,
        negative_log_q: Any = None,
    ) -> Tensor:
        """Return the loss."""
        if (target_id is None) != (negative_id is None):
            raise ValueError("target_id and negative_id must be given together")
        if (target_log_q is None) != (negative_log_q is None):
            raise ValueError("target_log_q and negative_log_q must be given together")
        positive = ops.sum(user * target, -1, True) * self.scale
        if negative.ndim == 2:
            others = ops.matmul(user, ops.transpose(negative, (1, 0))) * self.scale
        else:
            others = ops.sum(ops.expand_dims(user, 1) * negative, -1) * self.scale
        if target_log_q is not None:
            positive = positive - ops.reshape(target_log_q, (-1, 1))
            others = others - negative_log_q
        if target_id is not None:
            is_target = ops.reshape(target_id, (-1, 1)) == negative_id
            others = ops.masked_fill(others, is_target, Tensor(_NEVER, ms.float32))
        logits = self.join(positive, others)
        return ops.mean(_log_sum(logits) - ops.reshape(positive, (-1,)))


class BPRLoss(nn.Cell):
    r"""Bayesian personalized ranking: trains targets to outscore negatives.

    .. math::
        \ell = -\operatorname*{mean}_{b, j}\; \log \sigma(s_b - s_{b, j})

    Source: Rendle et al. 2009, BPR: Bayesian personalized ranking from implicit feedback
    (https://arxiv.org/abs/1205.2618). The loss and its gradient are computed by
    :class:`BCEWithLogitsLoss`, which reads the differences of the scores.

    Inputs:
        - **positive** (Tensor): float32 ``[B]`` or ``[B, 1]``, scores of the rows' targets.
        - **negative** (Tensor): float32 ``[B]`` or ``[B, N]``, scores of the rows' negatives.

    Outputs:
        float32 Tensor of shape ``()``; not finite if there are no rows.

    Supported platforms:
        ``CPU``

    Example:
        >>> value = BPRLoss()(Tensor([1.0]), Tensor([[1.0, 0.0]]))
        >>> round(float(value.asnumpy()), 4)
        0.5032
    """

    def __init__(self) -> None:
        super().__init__()
        self.loss = BCEWithLogitsLoss()

    def construct(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        rows = negative.shape[0]
        gaps = ops.reshape(positive, (rows, 1)) - ops.reshape(negative, (rows, -1))
        return self.loss(gaps, ops.ones_like(gaps))


def _log_sum(logits: Tensor) -> Tensor:
    """Map each row of ``logits`` ``[B, N]`` to log(sum(exp(row))); return the results, ``[B]``."""
    most = ops.stop_gradient(ops.amax(logits, 1, True))  # `max` refuses an empty batch
    sums = ops.sum(ops.exp(logits - most), 1)
    return ops.log(sums) + ops.reshape(most, (-1,))
