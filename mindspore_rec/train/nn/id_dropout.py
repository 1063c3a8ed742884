# SPDX-License-Identifier: Apache-2.0
"""IdDropout: in training, replaces a share of the ids by a padding key."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.nn.dropout import SeededDropout, check_rate

__all__ = ["IdDropout"]


class IdDropout(nn.Cell):
    """In training, replace a share of the ids by a padding key; in evaluation, return all ids.

    If the lookup has the same padding key, the lookup returns zeros for a dropped id, as for an id
    without a row. With `IdDropout`, the network learns to predict for ids without a row, and relies
    less on rare ids. As in `SeededDropout`, masks are drawn in advance and each row of a batch uses
    the next mask. The masks depend only on the seed and the number of training steps; a checkpoint
    saves this number. All workers begin with the same masks.

    Args:
        rates: for each column of the ids, the probability that an id is dropped, in [0, 1).
        padding_key: the key that replaces dropped ids.
        seed: seed of the masks, at least 0. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, len(rates)]`.

    Outputs:
        int64 Tensor `[B, len(rates)]`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.train.nn.id_dropout import IdDropout
        >>> ids = Tensor(np.arange(2000).reshape(1000, 2))
        >>> dropped = IdDropout([0.3, 0.0], -1).set_train()(ids).asnumpy() == -1
        >>> dropped.sum(0).tolist()
        [302, 0]
    """

    def __init__(self, rates: Sequence[float], padding_key: int, seed: int = 0) -> None:
        super().__init__()
        checked = np.array([check_rate("rates", each) for each in rates], np.float32)
        random = np.random.default_rng(seed)
        dropped = random.random((SeededDropout.masks, len(checked)), np.float32) < checked
        self.dropped = Tensor(dropped)
        self.padding = Tensor(padding_key, ms.int64)
        self.used = Parameter(Tensor(np.zeros(1, np.int32)), name="used", requires_grad=False)

    def construct(self, ids: Tensor) -> Tensor:
        """Return the ids; in training, replace some ids by `padding_key`."""
        if not self.training:
            return ids
        used = (self.used + SeededDropout.stride) % SeededDropout.masks
        ops.assign(self.used, used)
        # a cumulative sum counts rows even if their number is known only when the graph runs
        row = ops.cast(ops.cumsum(ops.ones_like(ids[:, 0]), 0), ms.int32)
        dropped = ops.gather(self.dropped, (row + used) % SeededDropout.masks, 0)
        return ops.select(dropped, ops.ones_like(ids) * self.padding, ids)
