# SPDX-License-Identifier: Apache-2.0
"""Click models, whose output is one logit: configuration, building, training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.train import FixedLossScaleManager

from mindspore_rec import RecModel, TrainSummary
from mindspore_rec.metrics import AUC, LogLoss
from models.common.config import read_yaml, to_json
from models.common.data import CensusIncome, Criteo, Data, MovieLens, Synthetic
from models.common.embedding import EmbeddingConfig, embedding_parameters
from models.common.evaluation import Evaluation, evaluate
from models.common.operators import OperatorTimes
from models.common.optimizer import OptimizerConfig, lazy_adam
from models.common.precision import check_compute_dtype, loss_scale, lower_precision
from models.common.report import Recorder
from models.common.training import TrainConfig, step_count
from models.common.watch import Watch

__all__ = ["ClickConfig", "ClickModel", "Run", "build", "figures", "read_config", "train"]


@dataclass(frozen=True)
class ClickConfig:
    """A run of a click model; each model's configuration adds `model`, its network.

    Args:
        data: what to train on.
        embedding: how the embeddings are held.
        optimizer: how the model learns.
        train: for how long.
        compute_dtype: what the perceptrons' linear layers compute in: 'float32', 'float16', or
            'bfloat16' where the backend has it; weights and embeddings are float32 always.
            Default: 'float32'.

    Raises:
        ValueError: data with more than one task, or a type that the backend does not have.
    """

    data: Synthetic | Criteo | CensusIncome | MovieLens
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        check_compute_dtype(self.compute_dtype)
        if isinstance(self.data, CensusIncome) and len(self.data.tasks) != 1:
            raise ValueError(
                "'data.tasks' must be one task: a click model has one output, got "
                f"{self.data.tasks}"
            )


def _adam(net: nn.Cell, config: Any, steps: int) -> nn.Optimizer:
    embeddings = embedding_parameters(net)
    taken = {id(p) for p in embeddings}
    others = [p for p in net.trainable_params() if id(p) not in taken]
    scale = loss_scale(config.compute_dtype)
    return lazy_adam(config.optimizer, embeddings, others, steps, scale)


@dataclass(frozen=True)
class ClickModel:
    """What a model's folder tells the code that all click models share.

    Args:
        name: of the folder, and what the names of tables begin with.
        title: for people.
        config: its configuration, a dataclass derived from `ClickConfig`.
        network: its network, a Cell of fields, dense and embedding, and by keyword of the fields of
            the configuration's `model`, `name` and `seed`.
        optimizer: makes the optimizer of (network, configuration, steps). Default: LazyAdam.
    """

    name: str
    title: str
    config: type[ClickConfig]
    network: type[nn.Cell]
    optimizer: Callable[[nn.Cell, Any, int], nn.Optimizer] = _adam

    @property
    def configs(self) -> Path:
        """The folder of the model's own configurations."""
        return Path(__file__).parents[1] / self.name / "configs"

    def net(self, config: Any, fields: int, dense: int, name: str, seed: int) -> nn.Cell:
        """The network that a configuration asks for.

        Args:
            config: of `self.config`.
            fields: number of categorical fields.
            dense: number of numbers.
            name: what the tables' names begin with.
            seed: of the tables' first values.
        """
        shape = dataclasses.asdict(config.model)
        return self.network(fields, dense, config.embedding, **shape, name=name, seed=seed)


@dataclass(frozen=True)
class Run:
    """A trained model.

    Args:
        model: the model.
        summary: figures of the training, the metrics on the test rows among them.
        evaluation: more metrics on the test rows, at the end; None of an interrupted run.
        recorder: loss, rows and hit rates on the way.
        operators: what operators took, where that was asked for.
    """

    model: RecModel
    summary: TrainSummary
    evaluation: Evaluation | None
    recorder: Recorder
    operators: OperatorTimes | None = None


def read_config(model: ClickModel, path: str | Path) -> Any:
    """A configuration file of a model.

    Args:
        model: whose.
        path: a file, or the name of one of the model's own.

    Raises:
        ValueError: it is not there, has unknown or missing keys, or values of a wrong type.
    """
    given = Path(path)
    own = model.configs / given.name
    if not given.exists() and len(given.parts) == 1 and own.exists():
        given = own
    return read_yaml(given, model.config)


def build(model: ClickModel, config: Any, data: Data, name: str | None = None) -> RecModel:
    """The model with its optimizer and metrics; sets MindSpore's seed.

    Args:
        model: which.
        config: of `model.config`.
        data: what it is to be trained on.
        name: what the tables' names begin with. Default: the model's.

    Raises:
        ValueError: values of the configuration that are out of range or do not go together.
    """
    seed = config.train.seed
    ms.set_seed(seed + 1)  # MindSpore's seeds start at 1
    net = model.net(config, data.fields, data.dense, name or model.name, seed)
    lower_precision(net, config.compute_dtype)
    optimizer = model.optimizer(net, config, step_count(config.train, data))
    if config.embedding.host_device_mix:
        optimizer.target = "CPU"
    metrics = {"auc": AUC(from_logits=True), "log_loss": LogLoss(from_logits=True)}
    scale = FixedLossScaleManager(loss_scale(config.compute_dtype), drop_overflow_update=False)
    loss = nn.BCEWithLogitsLoss()
    return RecModel(net, loss, optimizer, metrics, loss_scale_manager=scale)


def train(
    model: ClickModel,
    config: Any,
    data: Data,
    name: str | None = None,
    progress: bool = True,
    operators: bool = False,
) -> Run:
    """Builds and trains, with evaluations on the way.

    Args:
        model: which.
        config: what to build, and how to train it.
        data: what to train on.
        name: what the tables' names begin with. Default: the model's.
        progress: as for `RecModel.train`.
        operators: whether to measure operators in some steps. Default: False.
    """
    built = build(model, config, data, name)
    watch = Watch(built, data, config.train, operators)
    batches = data.train(config.train.batch_size, config.train.epochs)
    summary = built.train(1, batches, watch.callbacks, progress=progress)
    whole = not summary.interrupted and not summary.stop_reason
    evaluation = evaluate(built, data) if whole else None
    return Run(built, summary, evaluation, watch.recorder, watch.operators)


def figures(model: ClickModel, config: Any, data: Data, run: Run) -> dict[str, Any]:
    """What a training's `--json` has of one run; a password in the cache's URL is left out."""
    return {
        "model": model.name,
        "data": data.name,
        "bayes_auc": data.bayes_auc,
        **run.summary.to_json(),
        "evaluation": None if run.evaluation is None else run.evaluation.metrics,
        "config": to_json(config),
    }
