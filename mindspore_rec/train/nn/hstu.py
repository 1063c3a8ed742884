# SPDX-License-Identifier: Apache-2.0
"""HSTU: a block of the hierarchical sequential transduction unit, which reads histories."""

from __future__ import annotations

from mindspore import Parameter, Tensor
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.dropout import SeededDropout, check_rate
from mindspore_rec.train.nn.fused.inputs import widened
from mindspore_rec.train.nn.history.operators import (
    FLOAT32_ONLY,
    NO_BIAS,
    NO_TIMES,
    GatedAttention,
    HistoryLayer,
    Residual,
    RowNorm,
    check_history,
)
from mindspore_rec.train.nn.history_transformer import MOST_TIME_BUCKETS, check_heads
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["HSTU"]


class HSTU(HistoryLayer):
    r"""One HSTU block over histories: an attention without softmax, and gates.

    .. math::
        Q, K, V, U = \text{SiLU}(W_1 \text{norm}(x) + b_1), \quad
        A_{ij} = \text{SiLU}(q_i \cdot k_j + p_{i-j} + t_{b(i,j)}) / n, \quad
        y = x + W_2\, \text{drop}(\text{norm}(A V) \odot U) + b_2

    In this formula, each value attends to itself and to earlier values (j up to i), norm is a layer
    normalization, and n is `max_length`. The learned bias p depends on the distance of two values
    in the history. The learned bias t depends on the bucket b of the time between the two values.
    All heads share the biases. No softmax is applied to the weights, so an output also depends on
    how often similar values occurred.

    The whole block is computed without padding. Scores are computed 16 rows at a time, as in
    `HistoryTransformer`.

    Results are identical bit for bit for any number of threads. The cell runs on the CPU.

    Source: Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers
    for Generative Recommendations", ICML 2024, https://arxiv.org/abs/2402.17152. In this cell, all
    projections have biases. If a query is from value i and a key is from value j, the time between
    the query and the key is the difference between the times of the values i and j.

    Args:
        embedding_dim: width of a value, 1 to 8192.
        max_length: usual length of a long history, 1 to 2**20. All weights are divided by
            `max_length`. There are also `max_length` learned biases, one per distance. Distances of
            `max_length` or more use the last bias. Histories may be longer.
        heads: number of heads, a divisor of `embedding_dim`. Default: 1.
        time_buckets: number of learned biases for time differences, one bias per bucket, 0 to 48.
            `HistoryTransformer` describes the buckets. Default: 0, which means no biases of time
            differences.
        dropout: probability that a unit is dropped in training, in [0, 1). Default: 0.0.

    Inputs:
        - **values** (Tensor): float32 `[N, embedding_dim]`, the values of all lists.
        - **offsets** (Tensor): int64 `[B + 1]`: list i is `values[offsets[i]:offsets[i + 1]]`. A
          list may be empty.
        - **times** (Tensor): int64 `[N]`, times of the values in any unit; only with
          `time_buckets`.

    Outputs:
        float32 Tensor `[N, embedding_dim]`.

    Attributes:
        out_features: width of the output, `embedding_dim`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, an input has the
            wrong shape, or `times` is missing.
        RuntimeError: `offsets` decrease, do not begin with 0, or do not end with N.

    Supported platforms:
        ``CPU``

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.nn import HSTU
        >>> block = HSTU(8, max_length=50, heads=2)
        >>> values = Tensor(np.ones((5, 8), np.float32))
        >>> block(values, Tensor(np.array([0, 3, 3, 5]))).shape  # lists of 3, 0 and 2 values
        (5, 8)
    """

    def __init__(
        self,
        embedding_dim: int,
        max_length: int,
        heads: int = 1,
        time_buckets: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dim = self.out_features = check_int("embedding_dim", embedding_dim, 1, 8192)
        check_heads(heads, embedding_dim)
        max_length = check_int("max_length", max_length, 1, 1 << 20)
        self.time_buckets = check_int("time_buckets", time_buckets, 0, MOST_TIME_BUCKETS)
        dropout = check_rate("dropout", dropout)
        self.norm = RowNorm(embedding_dim)
        self.projection = MLP(embedding_dim, (), out_features=4 * embedding_dim)
        self.attention = GatedAttention(heads, 1 / max_length, time_buckets > 0)
        self.by_distance = _biases(max_length, "by_distance")
        self.no_bias, self.no_times = NO_BIAS, NO_TIMES
        if time_buckets:
            self.by_time = _biases(time_buckets, "by_time")
        self.attention_norm = RowNorm(embedding_dim)
        self.output = MLP(embedding_dim, (), out_features=embedding_dim)
        self.add = Residual()
        self.drops = dropout > 0
        if self.drops:
            self.drop = SeededDropout(embedding_dim, dropout)

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor | None = None) -> Tensor:
        """Return a vector for each value."""
        if self.is_half:
            raise TypeError(FLOAT32_ONLY)
        check_history(values, offsets, self.dim)
        values = widened(values)
        of_times, by_time = self.no_times, self.no_bias
        if self.time_buckets > 0:
            if times is None:
                raise ValueError("times must be given if time_buckets is not 0")
            of_times, by_time = times, self.by_time
        gated = self.attention(
            self.projection(self.norm(values)),
            offsets,
            of_times,
            self.by_distance,
            by_time,
            self.attention_norm.gamma,
            self.attention_norm.beta,
        )[0]
        if self.drops:
            gated = self.drop(gated)
        return self.add(values, self.output(gated))


def _biases(count: int, name: str) -> Parameter:
    return Parameter(initializer(Normal(0.02), (count,)).init_data(), name=name)
