# SPDX-License-Identifier: Apache-2.0
"""The section `optimizer` of a configuration: settings of LazyAdam."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from mindspore import Parameter

from mindspore_rec.optim import LazyAdam
from models.common.checks import check_least
from models.common.training import learning_rate

__all__ = ["OptimizerConfig", "lazy_adam"]


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of LazyAdam.

    Args:
        learning_rate: learning rate of the first step, at least 0. Default: 1e-3.
        learning_rate_end: learning rate of the last step; the rate falls along half a cosine to
            this value. Default: None, which means a constant rate.
        dense_weight_decay: factor of the L2 penalty on all parameters except embeddings. Default:
            0.0.
        embedding_weight_decay: factor of the L2 penalty on the embeddings that a batch looks up.
            Default: 0.0.

    Raises:
        ValueError: a learning rate or a penalty is below 0.
    """

    learning_rate: float = 1e-3
    learning_rate_end: float | None = None
    dense_weight_decay: float = 0.0
    embedding_weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in (each.name for each in dataclasses.fields(OptimizerConfig)):
            value = getattr(self, name)
            if value is not None:
                check_least(f"'optimizer.{name}'", value, 0)


def lazy_adam(
    config: OptimizerConfig,
    embeddings: Iterable[Parameter],
    others: Iterable[Parameter],
    steps: int,
    loss_scale: float = 1.0,
) -> LazyAdam:
    """Return a LazyAdam with two L2 penalties: for the embeddings and for all other parameters.

    Args:
        config: rates and penalties.
        embeddings: parameters of the tables.
        others: all other parameters.
        steps: number of steps of the whole run, for a falling rate.
        loss_scale: factor by which the loss was multiplied. Default: 1.0.

    Raises:
        ValueError: the rate of the last step is at least the rate of the first step.
    """
    groups = [
        {"params": list(embeddings), "weight_decay": config.embedding_weight_decay},
        {"params": list(others), "weight_decay": config.dense_weight_decay},
    ]
    rate = learning_rate(config.learning_rate, config.learning_rate_end, steps)
    return LazyAdam(groups, learning_rate=rate, loss_scale=loss_scale)
