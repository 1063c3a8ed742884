# SPDX-License-Identifier: Apache-2.0
"""Model for online learning: DeepFM, and an optimizer for single events."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn

from mindspore_rec import CombinedOptimizer
from mindspore_rec.models import DeepFM
from mindspore_rec.optim import Adagrad
from models.common.embedding import EmbeddingConfig, embedding_parameters
from models.common.features import PackedFeatures

__all__ = ["build", "inputs_of", "online_loss", "online_optimizer"]


def build(
    fields: int,
    dense: int,
    dim: int = 8,
    hidden: Sequence[int] = (64, 32),
    dropout: float = 0.3,
    name: str = "online",
    seed: int = 0,
    row_dtype: str = "float32",
) -> nn.Cell:
    """Return the network; the predictor also calls this function, with the checkpoint's arguments.

    `row_dtype` is the type of the tables' values and of Adam's moments: 'float32' or 'bfloat16'.
    """
    embedding = EmbeddingConfig(embedding_dim=dim, value_dtype=row_dtype, state_dtype=row_dtype)
    features = PackedFeatures(fields, dense, embedding)
    return DeepFM(features, hidden=hidden, dropout=dropout, name=name, seed=seed)


def inputs_of(fields: int, dense: int) -> list[str]:
    """Return the network's inputs, which the checkpoint declares to predictors."""
    ids = f"ids:INT64:-1,{fields}"
    return [ids, f"numbers:FP32:-1,{dense}"] if dense else [ids]


def online_loss() -> nn.Cell:
    """Return a loss that sums over the batch: an event's gradient is the same in any batch."""
    return nn.BCEWithLogitsLoss(reduction="sum")


def online_optimizer(
    net: nn.Cell, bias_rate: float = 0.3, vector_rate: float = 0.02, dense_rate: float = 0.01
) -> nn.Optimizer:
    """Return Adagrad: a key's first events change the key's row more than later events.

    The default learning rates are for a model that starts untrained.

    Args:
        net: network that `build` returned.
        bias_rate: learning rate of the first-order weight of each key, such as a user's bias.
        vector_rate: learning rate of the keys' vectors.
        dense_rate: learning rate of the dense parameters.
    """
    tables = embedding_parameters(net)
    taken = {id(p) for p in tables}
    biases = [p for p in tables if p.name.startswith("first_order")]
    groups = [
        {"params": biases, "lr": bias_rate},
        {"params": [p for p in tables if not p.name.startswith("first_order")]},
    ]
    others = [p for p in net.trainable_params() if id(p) not in taken]
    return CombinedOptimizer(
        [
            Adagrad(groups, accum=10.0, learning_rate=vector_rate),
            Adagrad(others, accum=100.0, learning_rate=dense_rate),
        ]
    )
