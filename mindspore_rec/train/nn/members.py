# SPDX-License-Identifier: Apache-2.0
"""Members: an ensemble of networks that share all their layers and tables.

The rows of a batch are repeated once for each member, and each member multiplies its copy of a row
by learned factors. One pass through the shared layers computes the outputs for all copies of the
rows. Each member has its own output of the last layer. Source: Gorishniy et al., "TabM: Advancing
Tabular Deep Learning with Parameter-Efficient Ensembling", ICLR 2025,
https://arxiv.org/abs/2410.24210, where the form is called TabM-mini.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.fused.inputs import widened
from mindspore_rec.train.nn.fused.layer import may_fuse
from mindspore_rec.train.nn.fused.library import has_onednn
from mindspore_rec.train.nn.fused.member_rows import RepeatedRows

__all__ = ["MOST_MEMBERS", "MemberLogits", "MemberRows", "check_members"]

MOST_MEMBERS = 256
"""Greatest number of members."""


def check_members(members: int) -> int:
    """Check and return a number of members.

    Raises:
        TypeError, ValueError: `members` is not an int from 1 to `MOST_MEMBERS`.

    Example:
        >>> check_members(8)
        8
    """
    return check_int("members", members, 1, MOST_MEMBERS)


class MemberRows(nn.Cell):
    """Repeat rows for each member, and multiply each repetition by the member's learned factors.

    Initial factors are random signs, 1 or -1. All factors of one vector and one member have the
    same sign.

    Args:
        shape: shape of a row: `(numbers,)`, or `(vectors, width of a vector)`.
        members: number of ensemble members, K.
        seed: seed of the random signs; one or several ints.
        first: cell that computes the rows from the input. Default: None, which means that the input
            `x` contains the rows.

    Inputs:
        x: the rows, a float32 or bfloat16 Tensor `[B, *shape]`; or the input of the cell `first`,
            if `first` is set.

    Outputs:
        float32 Tensor `[K * B, *shape]`: all rows of the first member, all rows of the second
            member, and so on.

    Attributes:
        factors: a Parameter `[K, width]`, where `width` is the number of floats per row.

    Example:
        >>> rows = MemberRows((2,), members=3, seed=0)
        >>> rows(Tensor(np.array([[5, 7]], np.float32))).asnumpy().tolist()
        [[5.0, 7.0], [5.0, -7.0], [-5.0, -7.0]]
    """

    def __init__(
        self,
        shape: Sequence[int],
        members: int,
        seed: int | Sequence[int],
        first: nn.Cell | None = None,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.members = check_members(members)
        self.width = int(np.prod(self.shape))
        signs = np.random.default_rng(seed).choice([-1, 1], (members, self.shape[0]))
        factors = np.repeat(signs, self.width // self.shape[0], axis=1).astype(np.float32)
        self.factors = Parameter(Tensor(factors), name="factors")
        self.has_first = first is not None
        if first is not None:
            self.first = first
        self.repeats: Any = RepeatedRows() if has_onednn() else None

    @property
    def is_fused(self) -> bool:
        """True if one operator repeats the rows; the value is fixed in a compiled graph."""
        return self.repeats is not None and may_fuse([self])

    def construct(self, x: Tensor) -> Tensor:
        """Return the rows of all members."""
        if self.has_first:
            x = self.first(x)
        if self.is_fused:
            return ops.reshape(self.repeats(widened(x), self.factors), (-1, *self.shape))
        rows = ops.reshape(widened(x), (1, -1, self.width))
        scaled = rows * ops.expand_dims(self.factors, 1)
        return ops.reshape(scaled, (-1, *self.shape))


class MemberLogits(nn.Cell):
    r"""Return each member's logits in training, and the mean prediction's logits in evaluation.

    In evaluation, the probability of a row is the mean of the members' probabilities. For a label
    that is a number, the prediction is the mean of the members' numbers.

    Args:
        members: number of ensemble members, K.
        binary: for each task, True if the task's label has two values.

    Inputs:
        outputs: float32 Tensor `[K * B, T * K]` for T tasks: the outputs of the shared layers, in
            which each task has K columns. Column k of a task contains the logit of member k.

    Outputs:
        float32 Tensor, in training `[K * B, T]`, in evaluation `[B, T]`.

    Example:
        >>> outputs = Tensor(np.array([[0.0, 9], [9, 2]], np.float32))
        >>> logits = MemberLogits(2, (True,))
        >>> logits.set_train()(outputs).asnumpy().tolist()
        [[0.0], [2.0]]
        >>> mean = logits.set_train(False)(outputs).asnumpy()
        >>> bool(np.isclose(1 / (1 + np.exp(-mean)), (0.5 + 1 / (1 + np.exp(-2))) / 2).all())
        True
    """

    def __init__(self, members: int, binary: Sequence[bool]) -> None:
        super().__init__()
        self.members = check_members(members)
        self.tasks = len(binary)
        self.all_binary, self.none_binary = all(binary), not any(binary)
        self.binary = Tensor(np.array([binary], np.float32))
        self.own = Tensor(np.eye(members, dtype=np.float32).reshape(members, 1, 1, members))

    def construct(self, outputs: Tensor) -> Tensor:
        """Return the logits."""
        split = ops.reshape(outputs, (self.members, -1, self.tasks, self.members))
        logits = (split * self.own).sum(3)
        if self.training:
            return ops.reshape(logits, (-1, self.tasks))
        if self.none_binary:
            return logits.mean(0)
        chance = _log_mean_exp(_log_sigmoid(logits)) - _log_mean_exp(_log_sigmoid(-logits))
        if self.all_binary:
            return chance
        return self.binary * chance + (1.0 - self.binary) * logits.mean(0)


def _log_sigmoid(x: Tensor) -> Tensor:
    return ops.minimum(x, 0.0) - ops.log(1.0 + ops.exp(-ops.abs(x)))


def _log_mean_exp(x: Tensor) -> Tensor:
    """Return the logarithm of the mean of exp(x) over the first axis, without overflow."""
    largest = x.max(0, keepdims=True)
    return ops.log(ops.exp(x - largest).mean(0)) + ops.reshape(largest, x.shape[1:])
