# SPDX-License-Identifier: Apache-2.0
"""HistoryTransformer: causal self-attention over histories, as in SASRec and BST."""

from __future__ import annotations

from mindspore import Parameter, Tensor
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.dropout import SeededDropout, check_rate
from mindspore_rec.train.nn.fused.inputs import widened
from mindspore_rec.train.nn.history.operators import (
    FLOAT32_ONLY,
    NO_TIMES,
    AddPlaces,
    Attention,
    HistoryLayer,
    Residual,
    RowNorm,
    check_history,
)
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["HistoryTransformer", "check_heads"]

MOST_TIME_BUCKETS = 48  # of csrc/sequence/attention.h


class HistoryTransformer(HistoryLayer):
    r"""One transformer block over histories: each value attends to itself and to earlier values.

    .. math::
        x = v + p, \quad h = x + \text{drop}(W_o\, \text{attention}(\text{norm}(x))), \quad
        y = h + \text{drop}(\text{MLP}(\text{norm}(h)))

    In the formulas, norm is a layer normalization. The attention has the weights
    :math:`\text{softmax}(q \cdot k / \sqrt{d})`, where d is the width of a head. The learned vector
    p depends on the value's position, counted from the newest value of the history, or on the
    bucket of the time between the value and the newest value. If `positions` and `time_buckets` are
    both set, p is the sum of two vectors.

    A history is a list of values, oldest first. The lists of a batch are concatenated, so no
    padding is stored or computed. The attention's time is proportional to the sum of squared
    lengths. The time of all layers except the attention is proportional to the number of values.
    The scores of a list are never stored all at once, because the forward and the backward pass
    compute 16 rows of scores at a time. If several blocks are stacked, set `positions` and
    `time_buckets` only for the first block.

    Results are identical bit for bit for any number of threads. The cell runs on the CPU.

    Source: Kang & McAuley, "Self-Attentive Sequential Recommendation" (SASRec), ICDM 2018,
    https://arxiv.org/abs/1808.09781, and Chen et al., "Behavior Sequence Transformer for E-commerce
    Recommendation in Alibaba" (BST), 2019, https://arxiv.org/abs/1905.06874. The papers on SASRec
    and BST normalize at other points of the block.

    Args:
        embedding_dim: width of a value, 1 to 8192.
        heads: number of heads, a divisor of `embedding_dim`. Default: 1.
        hidden: width of the hidden layer of the MLP, at least 1. Default: 4 * `embedding_dim`.
        positions: number of learned vectors of positions, 0 to 2**20. The first position vector is
            for the newest value of a list. Values beyond the last position use the last vector.
            Default: 0, which means none.
        time_buckets: number of learned vectors of time differences, 0 to 48. The time between a
            value and the newest value selects the value's vector. Vector 0 is for a difference of
            0, vector 1 for 1, vector 2 for 2 to 3, vector 3 for 4 to 7, and so on by powers of two.
            Time differences above the range of the last vector also use the last vector. Default:
            0, which means none.
        dropout: probability that a unit is dropped in training, in [0, 1). Default: 0.0.
        activation: activation of the MLP, as in `MLP`. Default: 'relu'.

    Inputs:
        - **values** (Tensor): float32 `[N, embedding_dim]`, the values of all lists.
        - **offsets** (Tensor): int64 `[B + 1]`: list i is `values[offsets[i]:offsets[i + 1]]`. A
          list may be empty.
        - **times** (Tensor): int64 `[N]`, times of the values in any unit; only with
          `time_buckets`.

    Outputs:
        float32 Tensor `[N, embedding_dim]`.

    Attributes:
        out_features: width of the output, equal to `embedding_dim`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, an input has the
            wrong shape, or `times` is missing.
        RuntimeError: `offsets` decrease, do not begin with 0, or do not end with N.

    Supported platforms:
        ``CPU``

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import HistoryTransformer
        >>> block = HistoryTransformer(8, heads=2, positions=50)
        >>> values = Tensor(np.ones((5, 8), np.float32))
        >>> block(values, Tensor(np.array([0, 3, 3, 5]))).shape  # lists of 3, 0 and 2 values
        (5, 8)
    """

    def __init__(
        self,
        embedding_dim: int,
        heads: int = 1,
        hidden: int | None = None,
        positions: int = 0,
        time_buckets: int = 0,
        dropout: float = 0.0,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.dim = check_int("embedding_dim", embedding_dim, 1, 8192)
        dim = self.out_features = self.dim
        head_dim = check_heads(heads, dim)
        positions = check_int("positions", positions, 0, 1 << 20)
        self.time_buckets = check_int("time_buckets", time_buckets, 0, MOST_TIME_BUCKETS)
        dropout = check_rate("dropout", dropout)
        self.norm, self.hidden_norm = RowNorm(dim), RowNorm(dim)
        self.qkv = MLP(dim, (), out_features=3 * dim)
        self.attention = Attention(heads, head_dim)
        self.projection = MLP(dim, (), out_features=dim)
        self.mlp = MLP(
            dim,
            (4 * dim if hidden is None else hidden,),
            activation,
            dropout,
            out_features=dim,
        )
        self.has_positions = positions > 0
        if positions:
            self.positions = _vectors(positions, dim, "positions")
            self.add_positions = AddPlaces(by_time=False)
        if time_buckets:
            self.time_vectors = _vectors(time_buckets, dim, "time_vectors")
            self.add_times = AddPlaces(by_time=True)
        self.drops = dropout > 0
        if self.drops:
            self.drop = SeededDropout(dim, dropout)
            self.hidden_drop = SeededDropout(dim, dropout)
        self.add = Residual()
        self.no_times = NO_TIMES

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor | None = None) -> Tensor:
        """Return an output vector for each value of the histories."""
        if self.is_half:
            raise TypeError(FLOAT32_ONLY)
        check_history(values, offsets, self.dim)
        values = widened(values)
        x = values
        if self.has_positions:
            x = self.add_positions(x, offsets, self.no_times, self.positions)
        if self.time_buckets > 0:
            if times is None:
                raise ValueError("times must be given if time_buckets is not 0")
            x = self.add_times(x, offsets, times, self.time_vectors)
        attended = self.projection(self.attention(self.qkv(self.norm(x)), offsets))
        if self.drops:
            attended = self.drop(attended)
        x = self.add(x, attended)
        hidden = self.mlp(self.hidden_norm(x))
        if self.drops:
            hidden = self.hidden_drop(hidden)
        return self.add(x, hidden)


def check_heads(heads: int, dim: int) -> int:
    """Return the width of a head.

    Raises:
        TypeError, ValueError: `heads` is not an int that divides `dim`.

    Example:
        >>> check_heads(4, 32)
        8
    """
    if dim % check_int("heads", heads, 1, dim) != 0:
        raise ValueError(f"heads must be a divisor of embedding_dim {dim}, got {heads}")
    return dim // heads


def _vectors(count: int, dim: int, name: str) -> Parameter:
    return Parameter(initializer(Normal(0.02), (count, dim)).init_data(), name=name)
