# SPDX-License-Identifier: Apache-2.0
"""The Wide & Deep network and its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec import MLP, EmbeddingBag, EmbeddingLookup, HashEmbeddingLookup
from mindspore_rec.optim import FTRL, CombinedOptimizer, LazyAdam

__all__ = ["EMBEDDINGS", "WideDeep", "make_optimizer"]

EMBEDDINGS = ("hash", "static")


class WideDeep(nn.Cell):
    r"""Wide & Deep: a linear model that memorizes and a perceptron that generalizes, summed.

    .. math::
        z = b + \sum_f w_{i_f} + u^T x + \text{MLP}([e_{i_1}, ..., e_{i_F}, x])

    with :math:`i_f` the id of field f and :math:`x` the numbers. One table holds the weights
    :math:`w` and one the embeddings :math:`e` of all fields, whose ids must not collide: keys that
    are salted by the field's name, as `mindspore_rec.feature.hashing.category_keys` makes them.

    Source: Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric features N, at least 0.
        dim: floats of an embedding. Default: 16.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: of the perceptron. Default: False.
        param_init: first values of the embeddings, as for `HashEmbeddingLookup`; those of the wide
            part are 0. Default: 'normal'.
        embedding: 'hash': tables grow with the ids, none collide. 'static': `buckets` rows each, an
            id's row is the remainder of its low 31 bits. Default: 'hash'.
        buckets: rows of a static table, 1 to 2**31 - 1; only for 'static'.
        host_device_mix: True: rows live on the host and are looked up and trained there, only
            those a batch touches, while the dense part runs on the device. False: the tables are
            ordinary Parameters on the device with dense gradients; only for 'static', for hash
            tables are on the host always. Default: True.
        name: what the tables' names begin with. Default: 'wide_deep'.
        seed: of the tables' first values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; there is no such input where N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of range or does not go with
            another.
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        dim: int = 16,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        *,
        param_init: Any = "normal",
        embedding: str = "hash",
        buckets: int | None = None,
        host_device_mix: bool = True,
        name: str = "wide_deep",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if fields < 1 or dense < 0:
            raise ValueError(
                f"fields must be at least 1 and dense at least 0, got {fields}, {dense}"
            )
        _check_embedding(embedding, buckets, host_device_mix)
        self.width = fields * dim
        self.buckets = buckets
        # MindSpore computes remainders of int64 in floating point: exact for short ones only.
        self.low_bits = Tensor((1 << 31) - 1, ms.int64)
        self.has_numbers = dense > 0
        self.host_device_mix = host_device_mix
        self.wide_table = _wide_table(buckets, host_device_mix, f"{name}.wide", seed)
        self.deep_table = _deep_table(
            dim, param_init, buckets, host_device_mix, f"{name}.deep", seed
        )
        self.wide_sums = isinstance(self.wide_table, EmbeddingBag)
        if dense:
            self.wide_dense = nn.Dense(dense, 1, weight_init="zeros")
        self.deep = MLP(self.width + dense, hidden, "relu", dropout, batch_norm, out_features=1)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Logits."""
        if self.buckets is not None:
            ids = ops.bitwise_and(ids, self.low_bits) % self.buckets
        wide = self.wide_table(ids)
        if not self.wide_sums:
            wide = wide.sum(1)
        deep = self.deep_table(ids).reshape((-1, self.width))
        if self.has_numbers:
            wide = wide + self.wide_dense(numbers)
            deep = ops.concat((deep, numbers), 1)
        return wide + self.deep(deep)

    def wide_parameters(self) -> list[Parameter]:
        """What the linear part learns."""
        cells = [self.wide_table, self.wide_dense] if self.has_numbers else [self.wide_table]
        return [p for cell in cells for p in cell.trainable_params()]

    def deep_parameters(self) -> list[Parameter]:
        """What the deep part learns: embeddings and perceptron."""
        return self.deep_table.trainable_params() + self.deep.trainable_params()


def make_optimizer(
    net: WideDeep,
    wide_learning_rate: float = 0.05,
    wide_l1: float = 1e-6,
    wide_l2: float = 1e-6,
    deep_learning_rate: Any = 1e-3,
    dense_weight_decay: float = 0.0,
    embedding_weight_decay: float = 0.0,
) -> CombinedOptimizer:
    """FTRL on the wide part and LazyAdam on the deep one, as one optimizer.

    Args:
        net: the network. With `host_device_mix` the update of the dense parameters too is placed
            on the host, where the tables are.
        wide_learning_rate: of FTRL, > 0. Default: 0.05.
        wide_l1: of FTRL, >= 0: makes weights of rare ids exactly 0. Default: 1e-6.
        wide_l2: of FTRL, >= 0. Default: 1e-6.
        deep_learning_rate: number or schedule. Default: 1e-3.
        dense_weight_decay: L2 of the perceptron's weights, >= 0. Default: 0.0.
        embedding_weight_decay: L2 of the embeddings that a batch touches, >= 0. Default: 0.0.

    Returns:
        The optimizer.
    """
    embeddings = net.deep_table.trainable_params()
    groups = [
        {"params": embeddings, "weight_decay": embedding_weight_decay},
        {"params": net.deep.trainable_params(), "weight_decay": dense_weight_decay},
    ]
    optimizer = CombinedOptimizer(
        [
            FTRL(net.wide_parameters(), learning_rate=wide_learning_rate, l1=wide_l1, l2=wide_l2),
            LazyAdam(groups, learning_rate=deep_learning_rate),
        ]
    )
    if net.host_device_mix:
        optimizer.target = "CPU"
    return optimizer


def _check_embedding(embedding: str, buckets: int | None, host_device_mix: bool) -> None:
    if embedding not in EMBEDDINGS:
        raise ValueError(f"embedding must be one of {EMBEDDINGS}, got {embedding!r}")
    if (embedding == "static") != (buckets is not None):
        raise ValueError(
            f"buckets must be given with embedding='static' and with it only, got {buckets} with "
            f"{embedding!r}"
        )
    if buckets is not None and not 1 <= buckets < 1 << 31:
        raise ValueError(f"buckets must be in [1, 2**31 - 1], got {buckets}")
    if embedding == "hash" and not host_device_mix:
        raise ValueError(
            "host_device_mix must be True with embedding='hash': hash tables are on the host"
        )


def _wide_table(buckets: int | None, on_host: bool, name: str, seed: int) -> nn.Cell:
    if buckets is None:
        return EmbeddingBag(1, "sum", key_dtype=ms.int64, param_init="zeros", name=name, seed=seed)
    if on_host:
        return EmbeddingBag(1, "sum", vocab_size=buckets, param_init="zeros", name=name, seed=seed)
    return EmbeddingLookup(buckets, 1, "zeros", target="DEVICE", sparse=False)


def _deep_table(
    dim: int, init: Any, buckets: int | None, on_host: bool, name: str, seed: int
) -> nn.Cell:
    if buckets is None:
        return HashEmbeddingLookup(dim, ms.int64, init, name=name, seed=seed)
    if on_host:
        return EmbeddingLookup(buckets, dim, init, target="CPU", name=name, seed=seed)
    return EmbeddingLookup(buckets, dim, init, target="DEVICE", sparse=False)
