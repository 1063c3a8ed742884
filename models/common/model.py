# SPDX-License-Identifier: Apache-2.0
"""A model of this folder, with one or several tasks: configuration, construction, training."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import mindspore as ms
from mindspore import nn
from mindspore.train import FixedLossScaleManager

from mindspore_rec import RecModel
from mindspore_rec.models import Network
from mindspore_rec.nn import BCEWithLogitsLoss
from mindspore_rec.train import TrainSummary
from models.common.cli import config_path
from models.common.config import read_yaml, to_json
from models.common.data import CensusIncome, Criteo, Data, MovieLens, Synthetic, open_data
from models.common.dense_device import on_dense_device
from models.common.embedding import EmbeddingConfig, embedding_parameters
from models.common.evaluation import Evaluation, evaluate, training_metrics
from models.common.features import PackedFeatures
from models.common.operators import OperatorTimes
from models.common.optimizer import OptimizerConfig, lazy_adam
from models.common.precision import check_compute_dtype, loss_scale, lower_precision
from models.common.report import Recorder
from models.common.training import TrainConfig, step_count
from models.common.vocabulary import with_vocabulary
from models.common.watch import Watch

__all__ = [
    "Run",
    "RunConfig",
    "ZooModel",
    "build",
    "figures",
    "open_run",
    "read_config",
    "train",
]


@dataclass(frozen=True)
class RunConfig:
    """Configuration of a run, from which each model derives a class with a field `model`.

    Args:
        data: settings of the data to train on.
        embedding: description of the embeddings.
        optimizer: settings of the optimizer.
        train: length of the run and size of the batches.
        compute_dtype: type of the factors in matrix products of dense layers: 'float32' or
            'bfloat16'; perceptrons also accept 'float16'. Weights and embeddings are always
            float32. On processors without bfloat16 instructions, 'bfloat16' is slower than
            'float32'. Default: 'float32'.
        dense_device: device of the dense layers, 'cpu' or 'cuda:N'. Default: None, which means the
            device that `mindspore_rec.get_dense_device` returns.

    Attributes:
        several_tasks: class attribute, True if the network has an output for each task. Default:
            False, which means one output.

    Raises:
        ValueError: the data have several tasks but the model supports only one, `compute_dtype` is
            unknown, or `embedding.buckets` is set although ids are numbered.
    """

    data: Synthetic | Criteo | CensusIncome | MovieLens
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    compute_dtype: str = "float32"
    dense_device: str | None = None

    several_tasks: ClassVar[bool] = False

    def settings(self) -> dict[str, Any]:
        """Return the settings of the network, the fields of the section `model`."""
        model = self.model  # type: ignore[attr-defined]
        return {each.name: getattr(model, each.name) for each in dataclasses.fields(model)}

    def __post_init__(self) -> None:
        check_compute_dtype(self.compute_dtype)
        if not self.several_tasks and isinstance(self.data, CensusIncome):
            _check_one_task("'data.tasks'", self.data.tasks)
        if self.embedding.numbers_ids and self.embedding.buckets is not None:
            raise ValueError(
                "'embedding.buckets' must be left out where ids are numbered: the training rows "
                f"decide how many there are, got {self.embedding.buckets}"
            )


def _check_one_task(name: str, tasks: tuple[str, ...]) -> None:
    if len(tasks) != 1:
        raise ValueError(f"{name} must be one task: the model has one output, got {tasks}")


def _adam(net: nn.Cell, config: Any, steps: int) -> nn.Optimizer:
    embeddings = embedding_parameters(net)
    taken = {id(p) for p in embeddings}
    others = [p for p in net.trainable_params() if id(p) not in taken]
    scale = loss_scale(config.compute_dtype)
    return lazy_adam(config.optimizer, embeddings, others, steps, scale)


@dataclass(frozen=True)
class ZooModel:
    """Description of a model: the parts that the model's folder adds to the common code.

    Args:
        name: name of the model's folder and prefix of the tables' names.
        title: name for people.
        config: class of the model's configuration, a dataclass derived from `RunConfig`.
        network: class of the model's network, derived from `mindspore_rec.models.Network`. The
            configuration's method `settings` returns the network's settings.
        optimizer: function `(network, configuration, steps)` that returns the optimizer; `steps` is
            the number of steps. Default: LazyAdam over all parameters.
    """

    name: str
    title: str
    config: type[RunConfig]
    network: type[Network]
    optimizer: Callable[[nn.Cell, Any, int], nn.Optimizer] = _adam

    @property
    def package(self) -> str:
        """Name of the model's package, such as 'models.deepfm'."""
        return self.config.__module__.rpartition(".")[0]

    @property
    def configs(self) -> Path:
        """Folder `configs`, with the model's configurations, next to the model's `config.py`."""
        return Path(str(sys.modules[self.config.__module__].__file__)).parent / "configs"

    def net(
        self,
        config: Any,
        fields: int,
        dense: int,
        name: str,
        seed: int,
        *,
        tasks: tuple[str, ...] = ("label",),
        vocabulary: int | None = None,
    ) -> Network:
        """Return the network that a configuration describes.

        Args:
            config: the configuration, an instance of the class `self.config`.
            fields: number of categorical fields.
            dense: number of numeric columns.
            name: prefix of the tables' names.
            seed: seed of the tables' initial values.
            tasks: names of the tasks. Default: one task.
            vocabulary: number of ids, if the configuration numbers the ids. Default: None.

        Raises:
            ValueError: values of the configuration are out of range or contradict each other.
        """
        embedding = config.embedding
        if embedding.numbers_ids:
            embedding = dataclasses.replace(embedding, buckets=vocabulary)
        features = PackedFeatures(fields, dense, embedding, tasks)
        return self.network(features, name=name, seed=seed, **config.settings())


@dataclass(frozen=True)
class Run:
    """A trained model.

    Args:
        model: the model.
        summary: figures of the training, including the metrics of the last evaluation during
            training.
        evaluation: metrics on the test rows after the run; None if the run was interrupted or
            stopped early.
        recorder: `Recorder` of the loss, the rows and the hit rates during training.
        operators: times of the operators; None if they were not measured. Default: None.
    """

    model: RecModel
    summary: TrainSummary
    evaluation: Evaluation | None
    recorder: Recorder
    operators: OperatorTimes | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of `evaluation` if it is set, otherwise of the last evaluation in training."""
        return self.summary.metrics if self.evaluation is None else self.evaluation.metrics


def read_config(model: ZooModel, path: str | Path) -> Any:
    """Read a configuration from a file.

    Args:
        model: model that the configuration describes.
        path: a file, or the name of one of the model's own configurations.

    Raises:
        ValueError: the file is missing, a key is unknown or missing, or a value is illegal.
    """
    return read_yaml(config_path(Path(path), model.configs), model.config)


def open_run(config: Any, directory: Path | None) -> Data:
    """Return the data of a run; ids become numbers from 0 if the configuration requires numbers.

    Args:
        config: configuration of the run.
        directory: directory of the files, as in `open_data`.

    Raises:
        ValueError: as `open_data`.
    """
    data = open_data(config.data, directory, config.train.seed)
    return with_vocabulary(data) if config.embedding.numbers_ids else data


def build(model: ZooModel, config: Any, data: Data, name: str | None = None) -> RecModel:
    """Set MindSpore's seed; return a model with its optimizer and metrics.

    The loss is the mean of the tasks' log losses.

    Args:
        model: model to build.
        config: the configuration, an instance of the class `model.config`.
        data: training data, from `open_run`.
        name: prefix of the tables' names. Default: the model's name.

    Raises:
        ValueError: values of the configuration are out of range, contradict each other, or do not
            fit the data.
    """
    if not model.config.several_tasks:
        _check_one_task("data.tasks", data.tasks)
    with on_dense_device(config.dense_device):
        return _built(model, config, data, name or model.name)


def _built(model: ZooModel, config: Any, data: Data, name: str) -> RecModel:
    seed = config.train.seed
    ms.set_seed(seed + 1)  # MindSpore's seeds start at 1
    net = model.net(
        config,
        data.fields,
        data.dense,
        name,
        seed,
        tasks=data.tasks,
        vocabulary=data.vocabulary,
    )
    lower_precision(net, config.compute_dtype)
    optimizer = model.optimizer(net, config, step_count(config.train, data))
    if config.embedding.host_device_mix:
        optimizer.target = "CPU"
    scale = FixedLossScaleManager(loss_scale(config.compute_dtype), drop_overflow_update=False)
    loss, metrics = BCEWithLogitsLoss(), training_metrics(data)
    return RecModel(net, loss, optimizer, metrics, loss_scale_manager=scale)


def train(
    model: ZooModel,
    config: Any,
    data: Data,
    name: str | None = None,
    progress: bool = True,
    operators: bool = False,
) -> Run:
    """Build and train a model, with evaluations during training.

    Args:
        model: model to train.
        config: the configuration, an instance of the class `model.config`.
        data: training data, from `open_run`.
        name: prefix of the tables' names. Default: the model's name.
        progress: whether to show a progress bar, as for `RecModel.train`. Default: True.
        operators: whether to measure operators in some steps. Default: False.
    """
    built = build(model, config, data, name)
    watch = Watch(built, data, config.train, operators)
    batches = data.train(config.train.batch_size, config.train.epochs)
    summary = built.train(1, batches, watch.callbacks, progress=progress)
    whole = not summary.interrupted and not summary.stop_reason
    evaluation = evaluate(built, data) if whole else None
    return Run(built, summary, evaluation, watch.recorder, watch.operators)


def figures(model: ZooModel, config: Any, data: Data, run: Run) -> dict[str, Any]:
    """Return the figures of one run for `--json`, without the password in a cache's URL."""
    record = {
        "model": model.name,
        "data": data.name,
        "bayes_auc": data.bayes_auc,
        "seed": config.train.seed,
        **run.summary.to_json(),
        "evaluation": None if run.evaluation is None else run.evaluation.metrics,
        "config": to_json(config),
    }
    if len(data.tasks) > 1:
        record["metrics"] = run.metrics  # with the metrics of each group of rows
    return record
