# SPDX-License-Identifier: Apache-2.0
"""A model that reads histories: its configuration, its training and its two commands.

The rows are from `datasets.synthetic.histories`, so the best possible AUC is known.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np

from datasets.synthetic.histories import TASKS, Planted, draw, schema_of
from mindspore_rec import LazyAdam, RecModel, load, tables_of
from mindspore_rec.metrics import functional
from mindspore_rec.models import Network
from models.common.checks import check_least
from models.common.cli import config_path, parser, save_json, seed_list
from models.common.config import read_yaml, to_json
from models.common.figures import mean_and_deviation

__all__ = [
    "HistoryModel",
    "HistoryRun",
    "RowsConfig",
    "evaluate_command",
    "history_model",
    "train",
    "train_command",
]


@dataclass(frozen=True)
class RowsConfig:
    """Settings in a configuration's section `data`.

    Args:
        task: 'seen' or 'interest', as in `datasets.synthetic.histories`.
        rows: number of training rows, at least 1. Default: 60,000.
        test_rows: number of test rows; the number of validation rows is the same. Test rows and
            validation rows must contain both labels. Default: 20,000.

    Raises:
        ValueError: a value is out of range.
    """

    task: str
    rows: int = 60_000
    test_rows: int = 20_000

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"'data.task' must be one of {', '.join(TASKS)}, got {self.task!r}")
        check_least("'data.rows'", self.rows, 1)
        check_least("'data.test_rows'", self.test_rows, 2)

    def draw(self, seed: int) -> tuple[Planted, Planted, Planted]:
        """Draw the training rows, the validation rows and the test rows from a seed.

        Raises:
            ValueError: the validation rows or the test rows have one label only, so the AUC is
                undefined.
        """
        sizes = (self.rows, self.test_rows, self.test_rows)
        first, second, third = (draw(self.task, n, 3 * seed + k) for k, n in enumerate(sizes))
        for part in (second, third):
            if len(np.unique(part.rows["label"].to_numpy())) < 2:
                raise ValueError(
                    f"'data.test_rows' must be so large that both labels occur, got "
                    f"{self.test_rows} and seed {seed}"
                )
        return first, second, third


@dataclass(frozen=True)
class LengthConfig:
    """Settings in a configuration's section `train`.

    Args:
        batch_size: number of rows in a batch, at least 1. Default: 256.
        epochs: maximum number of epochs, at least 1; a run keeps the epoch with the best AUC on the
            validation rows. Default: 8.
        learning_rate: learning rate of LazyAdam. Default: 0.003.
        seed: seed of the rows and of the network. Default: 0.

    Raises:
        ValueError: a value is out of range.
    """

    batch_size: int = 256
    epochs: int = 8
    learning_rate: float = 0.003
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("epochs", 1), ("learning_rate", 0), ("seed", 0)):
            check_least(f"'train.{name}'", getattr(self, name), least)


@dataclass(frozen=True)
class HistoryRun:
    """Configuration of a run; `history_model` adds the field `model` in a derived class.

    Args:
        data: settings of the rows to train on.
        train: batch size, number of epochs, learning rate and seed.
    """

    data: RowsConfig
    train: LengthConfig = field(default_factory=LengthConfig)

    def settings(self) -> dict[str, Any]:
        """Return the network's settings: a dict with the fields of the section `model`."""
        return dataclasses.asdict(self.model)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class HistoryModel:
    """Description of a model: the parts that the model's folder adds to the common code.

    Args:
        name: name of the model's folder and prefix of the tables' names.
        title: name for people.
        config: class of the model's configuration, derived from `HistoryRun`.
        network: class of the network. For a network that does not read histories, the rows contain
            no histories.
        times: whether the network reads the times of events. Default: False.
    """

    name: str
    title: str
    config: type[HistoryRun]
    network: type[Network]
    times: bool = False

    @property
    def configs(self) -> Path:
        """Folder `configs`, with the model's configurations, next to the file `config.py`."""
        return Path(str(sys.modules[self.config.__module__].__file__)).parent / "configs"


def history_model(
    title: str, network: type[Network], settings: type[Any], times: bool = False
) -> HistoryModel:
    """Return the description of a model that reads histories.

    Args:
        title: name for people.
        network: class of the network.
        settings: dataclass for the section `model` of a configuration. The dataclass is defined in
            the `config.py` of the model's folder. All fields have defaults.
        times: whether the network reads the times of events. Default: False.
    """
    section = ("model", settings, field(default_factory=settings))
    config = dataclasses.make_dataclass("Config", [section], bases=(HistoryRun,), frozen=True)
    config.__module__ = settings.__module__
    return HistoryModel(settings.__module__.split(".")[-2], title, config, network, times)


def train(model: HistoryModel, config: Any, save: Path | None = None) -> dict[str, Any]:
    """Train a model; return the figures at the epoch with the best AUC on the validation rows.

    Args:
        model: the model.
        config: the configuration, an instance of the class `model.config`.
        save: directory in which to save the model of the best epoch. Default: None.

    Returns:
        Dict with the keys `seed`, `auc` and `log_loss` (on the test rows), `bayes_auc` (the AUC of
            the true probabilities), `valid_auc` (after each epoch) and `seconds`.
    """
    began = time.perf_counter()
    rows, valid, test = config.data.draw(config.train.seed)
    ms.set_seed(config.train.seed + 1)  # MindSpore's seeds start at 1
    schema = schema_of(history=model.network.reads_histories, times=model.times)
    net = model.network(schema, name=model.name, seed=config.train.seed, **config.settings())
    built = RecModel(net, optimizer=LazyAdam(net.trainable_params(), config.train.learning_rate))
    batches = built.batches(rows.rows, config.train.batch_size)
    curve: list[float] = []
    metrics: dict[str, float] = {}
    for epoch in range(config.train.epochs):
        built.fit(epoch + 1, batches, initial_epoch=epoch, progress=False)
        curve.append(_metrics(built, valid)["auc"])
        if curve[-1] == max(curve):
            metrics = _metrics(built, test)
            if save is not None:
                built.save(save, overwrite=True)
    for table in tables_of(net):
        table.close()
    return {
        "seed": config.train.seed,
        **metrics,
        "bayes_auc": _auc(test, test.probability),
        "valid_auc": curve,
        "seconds": time.perf_counter() - began,
    }


def _auc(part: Planted, scores: np.ndarray) -> float:
    return float(functional.auc(part.rows["label"].to_numpy(), np.ravel(scores)))


def _metrics(model: RecModel, part: Planted) -> dict[str, float]:
    scores = np.ravel(model.predict(part.rows)).astype(np.float64)
    label = part.rows["label"].to_numpy()
    return {"auc": _auc(part, scores), "log_loss": float(functional.log_loss(label, scores))}


def train_command(model: HistoryModel, arguments: list[str] | None = None) -> int:
    """Train a model with one seed or several, and return the exit code."""
    made = parser(f"models.{model.name}.train", f"Train {model.title}.", model.configs)
    made.add_argument("--seeds", type=seed_list, metavar="0,1,...", help="instead of --seed")
    made.add_argument("--epochs", type=int, help="instead of the configuration's")
    made.add_argument("--save", type=Path, metavar="DIR", help="save the model to DIR, a new one")
    options = made.parse_args(arguments)
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        if options.save is not None and (options.seeds or options.save.exists()):
            raise ValueError("--save must be a new directory, and needs --seed in place of --seeds")
        config = _read(model, options)
        seeds = options.seeds or [config.train.seed]
        for seed in seeds:
            config.data.draw(seed)  # checks the rows of all seeds before the first training
        runs = []
        for seed in seeds:
            changed = dataclasses.replace(config.train, seed=seed)
            if options.epochs is not None:
                changed = dataclasses.replace(changed, epochs=options.epochs)
            runs.append(train(model, dataclasses.replace(config, train=changed), options.save))
            line = "seed {seed}: AUC {auc:.5f}, log loss {log_loss:.5f}, best AUC {bayes_auc:.5f}"
            print(line.format(**runs[-1]), flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    means = mean_and_deviation([{k: run[k] for k in ("auc", "log_loss")} for run in runs])
    record = {"model": model.name, "config": to_json(config), "runs": runs, **means}
    save_json(options.json, record)
    return 0


def evaluate_command(model: HistoryModel, arguments: list[str] | None = None) -> int:
    """Evaluate a saved model on the test rows, and return the exit code."""
    made = parser(f"models.{model.name}.eval", f"Evaluate a saved {model.title}.", model.configs)
    made.add_argument("--load", type=Path, required=True, help="directory that train --save made")
    options = made.parse_args(arguments)
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        config = _read(model, options)
        built = load(options.load)
        if not isinstance(built.predict_network, model.network):
            other = type(built.predict_network).__name__
            raise ValueError(f"--load must be a saved {model.title}, got a saved {other}")
        metrics = _metrics(built, config.data.draw(config.train.seed)[2])
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for table in tables_of(built.predict_network):
        table.close()
    print("AUC {auc:.5f}, log loss {log_loss:.5f}".format(**metrics))
    save_json(options.json, {"model": model.name, **metrics})
    return 0


def _read(model: HistoryModel, options: argparse.Namespace) -> Any:
    """Read the configuration that a command names; `--seed` replaces the configuration's seed."""
    config = read_yaml(config_path(options.config, model.configs), model.config)
    if options.seed is None:
        return config
    return dataclasses.replace(config, train=dataclasses.replace(config.train, seed=options.seed))
