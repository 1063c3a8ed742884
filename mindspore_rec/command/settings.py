# SPDX-License-Identifier: Apache-2.0
"""The settings of a YAML file: source, columns, split, model and training."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any, Literal

from mindspore_rec.common.checks import check_int, check_number
from mindspore_rec.common.data.settings import BadRows, CsvFormat, Sample
from mindspore_rec.common.strict import SettingsError, from_mapping
from mindspore_rec.common.yaml_text import read_yaml

__all__ = [
    "EarlyStoppingSettings",
    "KafkaSettings",
    "KafkaSource",
    "ModelSettings",
    "Settings",
    "SplitSettings",
    "TrainSettings",
    "read_settings",
    "settings_of",
]

Paths = str | tuple[str, ...]


@dataclass(frozen=True)
class KafkaSettings:
    """A topic of a Kafka broker, and the format of its messages.

    Args:
        servers: addresses of Kafka brokers, as in 'localhost:9092'.
        topic: name of the Kafka topic.
        format: 'arrow' if a message is an Arrow IPC stream, 'json' or 'tsv' if a message consists
            of lines of text. Default: 'arrow'.
        types: Arrow type of each column, as in `{user: string, price: float64}`. Default: the types
            that the columns imply; for Arrow messages, the types of the first message that fits the
            columns.
        sample: file with rows. Before the training, the scales of numbers are computed from these
            rows. Required if the columns include numbers.
        dead_letters: topic for messages that cannot be read. Default: none, which means that the
            first unreadable message ends the training.
    """

    servers: str
    topic: str
    format: Literal["arrow", "json", "tsv"] = "arrow"
    types: Mapping[str, str] = field(default_factory=dict)
    sample: str | None = None
    dead_letters: str | None = None


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka topic as the source of rows.

    Args:
        kafka: address, topic and message format.
    """

    kafka: KafkaSettings


@dataclass(frozen=True)
class SplitSettings:
    """Division of the rows into training, validation and test rows.

    Args:
        by: 'time' or 'random'. With 'time', the rows are divided by the column of kind time, and
            the test rows are the last rows. With 'random', the rows are divided by a hash of each
            row's place in the source. Default: 'time' if there is a column of kind time, else
            'random'.
        train: share of the source's rows for training, in (0, 1]. Default: all rows of the source
            that are not validation or test rows.
        valid: share of the source's rows for validation, in [0, 1), or paths of other files.
            Default: 0.1.
        test: share of the source's rows for tests, in [0, 1), or paths of other files. Default: 0.1
            if `train` is not set; else all rows of the source that are not training or validation
            rows.
        seed: seed of a random division. Default: 0.
    """

    by: Literal["time", "random"] | None = None
    train: float | None = None
    valid: float | str | tuple[str, ...] | None = None
    test: float | str | tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            share = getattr(self, name)
            if isinstance(share, float):
                check_number(name, share, low=0, high=1)
        train, valid, test = self.shares()
        if train <= 0:
            raise ValueError("the shares leave no row for training: they must add up to 1")
        if train + valid + test > 1 + 1e-9:
            total = train + valid + test
            raise ValueError(f"the shares must add up to at most 1, got {total:g}")

    def shares(self) -> tuple[float, float, float]:
        """Return the shares of training, validation and test rows among the source's rows.

        Example:
            >>> SplitSettings(train=0.75).shares()
            (0.75, 0.1, 0.15)
            >>> SplitSettings(valid="may.parquet", test="june.parquet").shares()
            (1.0, 0.0, 0.0)
        """
        valid = 0.1 if self.valid is None else self.valid
        valid = valid if isinstance(valid, float) else 0.0
        if isinstance(self.test, (str, tuple)):
            test = 0.0
        elif self.test is not None:
            test = self.test
        else:
            test = 0.1 if self.train is None else max(0.0, round(1 - self.train - valid, 9))
        train = round(1 - valid - test, 9) if self.train is None else self.train
        return train, valid, test


@dataclass(frozen=True)
class ModelSettings:
    """The network and its settings.

    Args:
        name: name of a network, or 'my_file.py:MyNet'. Default: 'dcn_v2'.
        settings: arguments of the network. In the YAML file, the arguments are keys of the same
            mapping as `name`.
    """

    name: str = "dcn_v2"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlyStoppingSettings:
    """Early stopping: the training ends if a metric of the validation rows stops improving.

    Args:
        metric: 'auc', 'log_loss' or 'rmse'. With several labels, write the metric, a dot and the
            label's name, as in 'auc.bought'. Default: 'auc' of the first label, or 'rmse' if that
            label is a number.
        patience: number of successive evaluations without improvement, at least 1. Default: 2, or 1
            with the schedule 'plateau'.
    """

    metric: str | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.patience is not None:
            check_int("patience", self.patience, 1, 1 << 30)


@dataclass(frozen=True)
class TrainSettings:
    """Settings of the training.

    Args:
        epochs: largest number of passes over the training rows, at least 1. Default: 3.
        batch_size: number of rows of a training step, at least 1. Default: 1024.
        learning_rate: learning rate of Adam, above 0. Default: 0.003.
        table_rate: factor, above 0, by which the learning rate of embedding tables is multiplied.
            Default: 1.
        seed: seed of initial values, dropout and order of rows. Default: 0.
        workers: number of processes that train together, at least 1. Default: 1.
        evaluations: number of evaluations per epoch, at least 1. Default: 1.
        early_stopping: true to end the training early, false to train all epochs. Default: true.
        schedule: course of the learning rate. 'constant': the rate does not change. 'cosine': the
            rate falls along half a cosine wave to 0 at the end of the last epoch. 'plateau': the
            first early stop returns to the best weights, divides the rate by 5 and continues; the
            second early stop ends the training. Default: 'constant'.
        warm_up: share of the first epoch in which the rate rises from near 0, in [0, 1]. Default:
            0.
        order: 'random' or 'time'. With 'time', rows stay in the order of their time, and only the
            rows of 32 successive batches are shuffled. Default: 'random'.
        ema: decay, in (0, 1), of a moving average of the dense weights. Evaluations and the saved
            model use the averaged weights. Default: none.
        refit: True trains a new model on training and validation rows together, with the passes and
            the learning rates that led to the best weights. Default: false.
        checkpoint_seconds: seconds between two checkpoints, above 0. `--resume` continues from the
            newest checkpoint. Default: 300.
        delta_seconds: seconds between two deltas of a training on a topic, above 0. Default: 1.
    """

    epochs: int = 3
    batch_size: int = 1024
    learning_rate: float = 0.003
    table_rate: float = 1.0
    seed: int = 0
    workers: int = 1
    evaluations: int = 1
    early_stopping: EarlyStoppingSettings | bool = True
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    warm_up: float = 0.0
    order: Literal["random", "time"] = "random"
    ema: float | None = None
    refit: bool = False
    checkpoint_seconds: float = 300.0
    delta_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "workers", "evaluations"):
            check_int(name, getattr(self, name), 1, 1 << 30)
        check_int("seed", self.seed, 0, (1 << 31) - 1)
        for name in ("learning_rate", "table_rate", "checkpoint_seconds", "delta_seconds"):
            check_number(name, getattr(self, name), low=0, low_open=True)
        check_number("warm_up", self.warm_up, low=0, high=1)
        if self.ema is not None:
            check_number("ema", self.ema, low=0, high=1, low_open=True, high_open=True)
        if self.schedule == "plateau":
            if self.early_stopping is False:
                raise ValueError("schedule must not be plateau if early_stopping is false")
            if self.warm_up * self.evaluations > 1:
                raise ValueError(
                    "warm_up must be at most 1 / evaluations with the schedule plateau, whose "
                    "first cut of the rate may come at the second evaluation"
                )

    @property
    def stopping(self) -> EarlyStoppingSettings | None:
        """Settings of early stopping; None if all epochs are trained."""
        if self.early_stopping is False:
            return None
        stopping = EarlyStoppingSettings() if self.early_stopping is True else self.early_stopping
        usual = 1 if self.schedule == "plateau" else 2
        return stopping if stopping.patience else dataclasses.replace(stopping, patience=usual)

    @property
    def only_for_files(self) -> list[str]:
        """Names of settings that differ from their defaults, but do not apply to a topic."""
        usual = TrainSettings()
        names = ("schedule", "warm_up", "order", "ema", "refit")
        return [name for name in names if getattr(self, name) != getattr(usual, name)]


@dataclass(frozen=True)
class Settings:
    """Contents of a YAML file: the data, the network and the training.

    Args:
        source: path, glob, folder, URL or list of paths; or a topic. Relative paths begin in the
            folder of the YAML file.
        columns: kind or settings of each column that is read, as a dict by column name.
        embedding_dim: length of an embedding vector, 1 to 8192. Default: 16.
        csv: settings of a CSV source, such as the delimiter.
        bad_rows: what happens to rows that cannot be read.
        sample: settings for training on only a sample of the negative rows. Default: none.
        split: division into training, validation and test rows.
        model: the network, with its settings.
        train: settings of the training, such as `epochs`.
    """

    source: str | tuple[str, ...] | KafkaSource
    columns: Mapping[str, Any]
    embedding_dim: int = 16
    csv: CsvFormat | None = None
    bad_rows: BadRows | None = None
    sample: Sample | None = None
    split: SplitSettings = SplitSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()

    def __post_init__(self) -> None:
        check_int("embedding_dim", self.embedding_dim, 1, 8192)
        if not self.columns:
            raise SettingsError("'columns' must name at least a label and a column to learn from")

    def with_train(self, **changes: Any) -> Settings:
        """Return the settings with new values in `train`; None leaves a setting unchanged."""
        set_values = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, train=dataclasses.replace(self.train, **set_values))


def settings_of(document: Any) -> Settings:
    """Convert a parsed YAML document to `Settings`.

    Raises:
        SettingsError: a key is unknown or missing, or a value is illegal.

    Example:
        >>> columns = {"user": "category", "clicked": "label"}
        >>> settings_of({"source": "a.csv", "columns": columns, "model": "deepfm"}).model
        ModelSettings(name='deepfm', settings={})
    """
    if document is None:
        raise SettingsError(
            "the file must be a mapping with the keys source and columns, and is empty: did init "
            "print an error?"
        )
    if not isinstance(document, Mapping):
        raise SettingsError("the file must be a mapping with the keys source and columns")
    values = dict(document)
    if "model" in values:
        values["model"] = _model(values["model"])
    return from_mapping(Settings, values)


def _model(value: Any) -> ModelSettings:
    if isinstance(value, str):
        return ModelSettings(value)
    if not isinstance(value, Mapping):
        raise SettingsError(
            f"'model' must be a name, or a mapping with the key name, got {value!r}"
        )
    settings = {key: each for key, each in value.items() if key != "name"}
    for key in settings:
        if not isinstance(key, str):
            raise SettingsError(f"'model.{key}' is not known: keys must be names of settings")
    name = value.get("name", ModelSettings.name)
    if not isinstance(name, str):
        raise SettingsError(f"'model.name' must be a text, got {name!r}")
    return ModelSettings(name, settings)


def read_settings(path: Path) -> Settings:
    """Read the settings from a YAML file; relative paths of sources start at the file's folder.

    Raises:
        ValueError: the file cannot be read, or `settings_of` refuses the settings. The error's
            message names the file.
    """
    document = read_yaml(path)
    try:
        settings = settings_of(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    folder = path.parent
    source, split = settings.source, settings.split
    return dataclasses.replace(
        settings,
        source=_source_beside(folder, source),
        model=_model_beside(folder, settings.model),
        split=dataclasses.replace(
            split,
            valid=_beside(folder, split.valid),
            test=_beside(folder, split.test),
        ),
    )


def _source_beside(folder: Path, source: Any) -> Any:
    if not isinstance(source, KafkaSource):
        return _beside(folder, source)
    sample = _beside(folder, source.kafka.sample)
    return KafkaSource(dataclasses.replace(source.kafka, sample=sample))


def _model_beside(folder: Path, model: ModelSettings) -> ModelSettings:
    """Return the network's settings; `folder` is prepended to the path of a Python file."""
    if ".py:" not in model.name:
        return model
    return dataclasses.replace(model, name=str(folder / model.name))


def _beside(folder: Path, paths: Any) -> Any:
    """Return paths relative to the present directory; URLs and network shares do not change."""
    if isinstance(paths, tuple):
        return tuple(_beside(folder, each) for each in paths)
    if not isinstance(paths, str) or "://" in paths:
        return paths
    path = folder / paths
    if not glob(str(path)) and glob(paths):
        raise ValueError(
            f"{paths!r} is not in {folder}: paths in a YAML file begin in the folder of the file, "
            f"so write {os.path.relpath(paths, folder)!r}"
        )
    return str(path)
