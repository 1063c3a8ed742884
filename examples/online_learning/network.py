# SPDX-License-Identifier: Apache-2.0
"""The model that learns online: DeepFM, and an optimizer whose steps suit single events."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn

from mindspore_rec import CombinedOptimizer
from mindspore_rec.optim import Adagrad
from models.common.embedding import EmbeddingConfig, embedding_parameters
from models.deepfm.net import DeepFM

__all__ = ["build", "inputs_of", "online_loss", "online_optimizer"]


def build(
    fields: int,
    dense: int,
    dim: int = 8,
    hidden: Sequence[int] = (64, 32),
    dropout: float = 0.3,
    name: str = "online",
    seed: int = 0,
) -> nn.Cell:
    """The network; the predictor calls this too, with the arguments that a checkpoint names."""
    held = EmbeddingConfig(dim=dim)
    return DeepFM(fields, dense, held, "embed", hidden, dropout, name=name, seed=seed)


def inputs_of(fields: int, dense: int) -> list[str]:
    """What it takes, for the checkpoint to tell predictors."""
    ids = f"ids:INT64:-1,{fields}"
    return [ids, f"numbers:FP32:-1,{dense}"] if dense else [ids]


def online_loss() -> nn.Cell:
    """The sum over a batch, not the mean: what an event teaches does not depend on its batch."""
    return nn.BCEWithLogitsLoss(reduction="sum")


def online_optimizer(
    net: nn.Cell, bias_rate: float = 0.3, vector_rate: float = 0.02, dense_rate: float = 0.01
) -> nn.Optimizer:
    """Adagrad: the first events of a key move its row far, later ones less.

    The rates are for a model that begins with nothing.

    Args:
        net: of `build`.
        bias_rate: of the weight that each key has of its own, so of each user's and movie's bias.
        vector_rate: of the keys' vectors.
        dense_rate: of all that is shared.
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
