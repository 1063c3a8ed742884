# SPDX-License-Identifier: Apache-2.0
"""The section `data` of a configuration, and the data sets that the section describes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datasets import census_income, movielens
from datasets.census_income.schema import MONEY
from datasets.common import Batch, batches
from datasets.synthetic import PlantedConfig, bayes_auc, criteo_like, generate

__all__ = [
    "CENSUS_ENVIRONMENT",
    "CensusIncome",
    "Criteo",
    "MOVIELENS_ENVIRONMENT",
    "Data",
    "MovieLens",
    "Synthetic",
    "open_data",
]

CENSUS_ENVIRONMENT = "MINDSPORE_REC_CENSUS_DIR"
MOVIELENS_ENVIRONMENT = "MINDSPORE_REC_MOVIELENS_DIR"
EVAL_BATCH = 16384
ADULT_AGE = 18
_COLUMNS = ("ids", "dense", "label")


@dataclass(frozen=True)
class Synthetic:
    """Rows in Criteo's form, drawn from a planted model during reading.

    Args:
        kind: 'synthetic'.
        rows: number of training rows.
        test_rows: number of test rows; training rows and test rows are drawn from the same planted
            model. Default: 200,000.
        max_cardinality: number of different values in the largest fields. Default: 10,000.
        pair_cardinality: fields with at most this number of different values take part in the
            planted model's pair interactions. Default: 1,500, as in
            `datasets.synthetic.criteo_like`.
        seed: seed of the planted model and of the rows. Default: 1.
    """

    rows: int
    kind: Literal["synthetic"] = "synthetic"
    test_rows: int = 200_000
    max_cardinality: int = 10_000
    pair_cardinality: int = 1500
    seed: int = 1

    def planted(self) -> PlantedConfig:
        """Return the configuration of the planted model."""
        config = criteo_like(self.max_cardinality)
        fields = tuple(
            field
            if field.cardinality <= self.pair_cardinality
            else dataclasses.replace(field, pairs=0.0)
            for field in config.fields
        )
        return dataclasses.replace(config, fields=fields)


@dataclass(frozen=True)
class Criteo:
    """Data of Criteo, or data in Criteo's form: packed training and test sets in one directory.

    Args:
        kind: 'criteo'.
        train: name of the training set in the directory. Default: 'train'.
        test: name of the test set. Default: 'test'.
    """

    kind: Literal["criteo"] = "criteo"
    train: str = "train"
    test: str = "test"


@dataclass(frozen=True)
class CensusIncome:
    """Census-Income (KDD) from the two files of UCI.

    Args:
        kind: 'census_income'.
        tasks: labels to learn: 'income', 'never_married' or both. Default: income alone.
        exact: columns of money amounts in which each exact amount is also a category. Default: all
            four columns.
        min_count: an exact amount is a category if the amount occurs in at least this number of
            rows. Default: 5.
        validation: share of the training rows to hold out for tuning. The evaluation uses the
            held-out rows instead of the test rows. If `validation` is 0, no rows are
            held out. Default: 0.0.
    """

    kind: Literal["census_income"] = "census_income"
    tasks: tuple[str, ...] = ("income",)
    exact: tuple[str, ...] = MONEY
    min_count: int = 5
    validation: float = 0.0


@dataclass(frozen=True)
class MovieLens:
    """MovieLens; the label is 1 if a rating is 4 or more.

    Args:
        kind: 'movielens'.
        split: 'random' or 'time', as for `datasets.movielens.load`. Default: 'random'.
        test: fraction of the ratings to use as test rows. Default: 0.2.
        validation: share of the training rows to hold out for tuning. The evaluation uses the
            held-out rows instead of the test rows. If `validation` is 0, no rows are
            held out. Default: 0.0.
    """

    kind: Literal["movielens"] = "movielens"
    split: str = "random"
    test: float = 0.2
    validation: float = 0.0


DataConfig = Synthetic | Criteo | CensusIncome | MovieLens


@dataclass(frozen=True)
class Data:
    """An open data set.

    Args:
        name: name of the data and of the test rows, for printed results.
        fields: number of categorical fields.
        dense: number of numeric columns.
        train: function `(batch_size, epochs)` that returns the training batches of all epochs in
            order.
        train_rows: number of rows in an epoch.
        test: batches of test rows, which can be read repeatedly, from memory or disk.
        bayes_auc: greatest possible AUC of a model on the test rows; None if it is unknown.
        tasks: names of the tasks, one for each column of the labels.
        groups: groups of test rows to evaluate separately: a dict from the group's name to a bool
            array with one entry per test row.
        users: array with the user of each test row, for metrics by user; None if rows have no
            users.
        vocabulary: number of different ids if the ids are numbers from 0; None if the ids are keys.
    """

    name: str
    fields: int
    dense: int
    train: Callable[[int, int], Iterable[Batch]]
    train_rows: int
    test: Any
    bayes_auc: float | None = None
    tasks: tuple[str, ...] = ("label",)
    groups: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    users: np.ndarray | None = None
    vocabulary: int | None = None

    @property
    def endings(self) -> tuple[str, ...]:
        """Suffix of each task's metric names: '.' and the task's name; '' for a single task."""
        return tuple(f".{task}" for task in self.tasks) if len(self.tasks) > 1 else ("",)


def open_data(config: DataConfig, directory: Path | None, seed: int) -> Data:
    """Open the data set that a configuration describes.

    Args:
        config: the section `data` of a configuration.
        directory: directory of the files. Synthetic data need no directory, so the directory may be
            None. The directory may also be None for Census-Income and MovieLens, if the environment
            variable `MINDSPORE_REC_CENSUS_DIR` or `MINDSPORE_REC_MOVIELENS_DIR` names the
            directory.
        seed: seed of the order of the rows; not used for synthetic data, which have one order.

    Raises:
        ValueError: no directory is given for real data, the directory lacks the data's files, or a
            directory is given for synthetic data.
    """
    if isinstance(config, Synthetic):
        return _open_synthetic(config, directory)
    if isinstance(config, Criteo):
        return _open_criteo(config, directory, seed)
    if isinstance(config, MovieLens):
        return _open_movielens(config, directory, seed)
    return _open_census(config, directory, seed)


def _open_synthetic(config: Synthetic, directory: Path | None) -> Data:
    if directory is not None:
        raise ValueError("--data is not for synthetic data, which are made as they are read")
    planted = config.planted()
    # Training rows and test rows are two ranges of one sequence of rows from the planted model.
    made = list(generate(config.test_rows, config.seed, config.rows, EVAL_BATCH, planted))

    def train(batch_size: int, epochs: int) -> Iterator[Batch]:
        for _ in range(epochs):
            for batch in generate(config.rows, config.seed, 0, batch_size, planted):
                yield _chosen(batch)

    return Data(
        f"synthetic, seed {config.seed}",
        len(planted.fields),
        planted.counts,
        train,
        config.rows,
        [_chosen(batch) for batch in made],
        bayes_auc(np.concatenate([batch["bayes"] for batch in made])),
    )


def _chosen(batch: Batch) -> Batch:
    return {name: batch[name] for name in _COLUMNS}


def _open_criteo(config: Criteo, directory: Path | None, seed: int) -> Data:
    if directory is None:
        raise ValueError("--data must name the directory with the packed train and test sets")
    first = next(iter(batches(directory / config.train, 1)))
    test = batches(directory / config.test, EVAL_BATCH)
    return Data(
        f"{directory}",
        first["ids"].shape[1],
        first["dense"].shape[1] if "dense" in first else 0,
        lambda batch_size, epochs: batches(
            directory / config.train, batch_size, shuffle=True, seed=seed, repeat=epochs
        ),
        len(batches(directory / config.train, 1)),
        test,
    )


def _open_census(config: CensusIncome, directory: Path | None, seed: int) -> Data:
    loaded = census_income.load(
        _given(directory, CENSUS_ENVIRONMENT),
        config.tasks,
        exact=config.exact,
        min_count=config.min_count,
        validation=config.validation,
    )
    test = loaded.validation if config.validation > 0 else loaded.test
    return Data(
        "Census-Income, " + _part(config.validation),
        len(loaded.id_names),
        len(loaded.dense_names),
        _in_memory(loaded.train.arrays(), seed),
        len(loaded.train),
        batches(test.arrays(), EVAL_BATCH),
        tasks=loaded.tasks,
        groups={"adult": test.age >= ADULT_AGE},
    )


def _open_movielens(config: MovieLens, directory: Path | None, seed: int) -> Data:
    loaded = movielens.load(
        _given(directory, MOVIELENS_ENVIRONMENT), config.split, config.test, config.validation
    )
    test = loaded.validation if config.validation > 0 else loaded.test
    return Data(
        f"MovieLens, split by {config.split}, " + _part(config.validation),
        test.ids.shape[1],
        test.dense.shape[1],
        _in_memory(loaded.train.arrays(), seed),
        len(loaded.train),
        batches(test.arrays(), EVAL_BATCH),
        users=test.user,
    )


def _given(directory: Path | None, environment: str) -> Path:
    if directory is not None:
        return directory
    if environment not in os.environ:
        raise ValueError(f"--data or {environment} must name the directory of the files")
    return Path(os.environ[environment])


def _part(validation: float) -> str:
    return ("validation" if validation > 0 else "test") + " rows"


def _in_memory(rows: Batch, seed: int) -> Callable[[int, int], Iterable[Batch]]:
    """Return a function `(batch_size, epochs)` that returns batches of the shuffled rows."""
    return lambda batch_size, epochs: batches(
        rows, batch_size, shuffle=True, seed=seed, repeat=epochs, shuffle_blocks=64
    )
