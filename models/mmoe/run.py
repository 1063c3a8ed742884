# SPDX-License-Identifier: Apache-2.0
"""Build, train and evaluate MMoE as a configuration says."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.common.initializer import Normal
from mindspore.train import FixedLossScaleManager

from mindspore_rec import LazyAdam, RecModel, TrainSummary, convert
from mindspore_rec.metrics import AUC, LogLoss, ReliabilityCurve
from models.common.data import Data, open_data
from models.common.evaluation import calibration, predictions
from models.common.operators import OperatorTimes
from models.common.optimizer import lazy_adam
from models.common.precision import loss_scale, lower_precision
from models.common.report import Recorder
from models.common.training import step_count
from models.common.vocabulary import with_vocabulary
from models.common.watch import Watch
from models.mmoe.config import Config
from models.mmoe.net import MMoENet

__all__ = ["Run", "build", "evaluate", "open_run", "train"]


@dataclass(frozen=True)
class Run:
    """A trained model.

    Args:
        model: the model.
        summary: figures of the training.
        metrics: those of `evaluate`, at the end.
        curves: predicted and observed rate on all test rows, by task.
        recorder: loss, rows and hit rates on the way.
        operators: what operators took, where that was asked for.
    """

    model: RecModel
    summary: TrainSummary
    metrics: dict[str, float]
    curves: dict[str, ReliabilityCurve]
    recorder: Recorder
    operators: OperatorTimes | None


def open_run(config: Config, directory: Path | None) -> tuple[Data, int | None]:
    """The data a configuration names, and the size of its vocabulary where it is fixed.

    Args:
        config: what to run.
        directory: where the files are, as for `open_data`.

    Raises:
        ValueError: as `open_data`.
    """
    data = open_data(config.data, directory, config.train.seed)
    return (data, None) if config.model.embedding == "hash" else with_vocabulary(data)


def build(
    config: Config, data: Data, name: str = "mmoe", *, vocabulary: int | None = None
) -> RecModel:
    """The model with its optimizer and metrics; sets MindSpore's seed.

    Args:
        config: what to build.
        data: what it is to be trained on.
        name: what the table's name begins with.
        vocabulary: the data's number of ids, where it is fixed.

    Raises:
        ValueError: values of the configuration that are out of range or do not go together.
    """
    ms.set_seed(config.train.seed + 1)  # MindSpore's seeds start at 1
    shape = {**dataclasses.asdict(config.model), "cache": config.model.cache}
    init = Normal(shape.pop("embedding_std"))
    seed = config.train.seed
    net = MMoENet(
        data.fields,
        data.dense,
        len(data.tasks),
        param_init=init,
        vocabulary=vocabulary,
        name=name,
        seed=seed,
        **shape,
    )
    if config.model.embedding == "converted":
        idle = config.model.max_idle_steps
        convert(
            net,
            names="embedding",
            evict_filter_value=sys.maxsize if idle is None else idle,
            param_init=init,
            prefix=f"{name}.",
            seed=seed,
        )
    lower_precision(net, config.compute_dtype)
    scale = FixedLossScaleManager(loss_scale(config.compute_dtype), drop_overflow_update=False)
    # The mean over rows and columns: the mean of the tasks' log losses.
    loss, optimizer = nn.BCEWithLogitsLoss(), _optimizer(net, config, data)
    return RecModel(net, loss, optimizer, _metrics(data), loss_scale_manager=scale)


def train(
    config: Config,
    data: Data,
    name: str = "mmoe",
    progress: bool = True,
    *,
    vocabulary: int | None = None,
    operators: bool = False,
) -> Run:
    """Builds and trains, with evaluations on the way.

    Args:
        config: what to build, and how to train it.
        data: what to train on.
        name: what the table's name begins with.
        progress: as for `RecModel.train`.
        vocabulary: the data's number of ids, where it is fixed.
        operators: whether to measure operators in some steps. Default: False.
    """
    model = build(config, data, name, vocabulary=vocabulary)
    watch = Watch(model, data, config.train, operators)
    batches = data.train(config.train.batch_size, config.train.epochs)
    summary = model.train(1, batches, watch.callbacks, progress=progress)
    logit, label = predictions(model, data)
    curves = {task: calibration(logit[:, k], label[:, k]) for k, task in enumerate(data.tasks)}
    metrics = _figures(data, logit, label)
    return Run(model, summary, metrics, curves, watch.recorder, watch.operators)


def evaluate(model: RecModel, data: Data) -> dict[str, float]:
    """AUC and log loss of each task on all test rows, and on each group of them.

    Returns:
        'auc.<task>' and 'log_loss.<task>', and for each group 'auc.<task>.<group>' and so on.
    """
    return _figures(data, *predictions(model, data))


def _figures(data: Data, logit: np.ndarray, label: np.ndarray) -> dict[str, float]:
    found = {}
    everything = {"": np.ones(len(label), bool)}
    for group, rows in {**everything, **{f".{k}": v for k, v in data.groups.items()}}.items():
        for key, metric in _metrics(data).items():
            metric.update(logit[rows], label[rows])
            found[f"{key}{group}"] = metric.eval()
    return found


def _metrics(data: Data) -> dict[str, Any]:
    made = ((f"auc.{task}", AUC(from_logits=True, task=k)) for k, task in enumerate(data.tasks))
    loss = (
        (f"log_loss.{task}", LogLoss(from_logits=True, task=k)) for k, task in enumerate(data.tasks)
    )
    return {**dict(made), **dict(loss)}


def _optimizer(net: MMoENet, config: Config, data: Data) -> LazyAdam:
    others = net.mixture.trainable_params() + net.towers.trainable_params()
    steps = step_count(config.train, data)
    scale = loss_scale(config.compute_dtype)
    return lazy_adam(config.optimizer, net.embedding.trainable_params(), others, steps, scale)
