# SPDX-License-Identifier: Apache-2.0
"""Build and train Wide & Deep as a configuration says."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.common.initializer import Normal

from mindspore_rec import EvalCallback, RecModel, StopOnNaN, TrainSummary
from mindspore_rec.metrics import AUC, LogLoss
from models.common.data import Data
from models.wide_deep.config import Config, OptimizerConfig
from models.wide_deep.net import WideDeep, make_optimizer

__all__ = ["Run", "build", "train"]


@dataclass(frozen=True)
class Run:
    """A trained model.

    Args:
        model: the model.
        summary: figures of the training, the metrics on the test rows among them.
    """

    model: RecModel
    summary: TrainSummary


def build(config: Config, data: Data, name: str = "wide_deep") -> RecModel:
    """The model with its optimizer and metrics; sets MindSpore's seed.

    Args:
        config: what to build.
        data: what it is to be trained on.
        name: what the tables' names begin with.

    Raises:
        ValueError: values of the configuration that are out of range or do not go together.
    """
    ms.set_seed(config.train.seed + 1)  # MindSpore's seeds start at 1
    shape = dataclasses.asdict(config.model)
    init = Normal(shape.pop("embedding_std"))
    seed = config.train.seed
    net = WideDeep(data.fields, data.dense, param_init=init, name=name, seed=seed, **shape)
    optimizer = _optimizer(net, config, _steps(config, data))
    metrics = {"auc": AUC(from_logits=True), "log_loss": LogLoss(from_logits=True)}
    return RecModel(net, nn.BCEWithLogitsLoss(), optimizer, metrics)


def train(config: Config, data: Data, name: str = "wide_deep", progress: bool = True) -> Run:
    """Builds and trains, with evaluations on the way.

    Args:
        config: what to build, and how to train it.
        data: what to train on.
        name: what the tables' names begin with.
        progress: as for `RecModel.train`.
    """
    model = build(config, data, name)
    every = max(1, _steps(config, data) // config.train.evaluations)
    callbacks = [EvalCallback(model, data.test, every, at_epoch_end=False), StopOnNaN()]
    batches = data.train(config.train.batch_size, config.train.epochs)
    return Run(model, model.train(1, batches, callbacks, progress=progress))


def _steps(config: Config, data: Data) -> int:
    return config.train.epochs * -(-data.train_rows // config.train.batch_size)


def _optimizer(net: WideDeep, config: Config, steps: int) -> Any:
    chosen = dataclasses.asdict(config.optimizer)
    end = chosen.pop("deep_learning_rate_end")
    if end is not None:
        chosen["deep_learning_rate"] = _cosine(config.optimizer, end, steps)
    return make_optimizer(net, **chosen)


def _cosine(config: OptimizerConfig, end: float, steps: int) -> Any:
    if not 0 <= end < config.deep_learning_rate:
        raise ValueError(
            f"deep_learning_rate_end must be in [0, {config.deep_learning_rate}), got {end}"
        )
    return nn.CosineDecayLR(end, config.deep_learning_rate, steps)
