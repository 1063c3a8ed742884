# SPDX-License-Identifier: Apache-2.0
"""Load Census-Income (KDD) into arrays of keys, scaled numbers and labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from datasets.census_income.schema import (
    AGE,
    COLUMNS,
    FILES,
    INCOME,
    MARITAL,
    MONEY,
    NUMERIC,
    TASKS,
    WEIGHT,
    category_columns,
)
from datasets.common.blocks import Batch, take_rows
from datasets.synthetic.counter import stream_words, uniform
from mindspore_rec import category_keys

__all__ = ["RARE", "CensusData", "Split", "load", "read_table"]

RARE = "<rare>"
"""The text whose key is the key of all amounts that occur too rarely in the training rows."""

_INCOME_TEXTS = {"50000+.": 1.0, "- 50000.": 0.0}
_NEVER_MARRIED = "Never married"


@dataclass(frozen=True)
class Split:
    """Rows as whole columns.

    Args:
        ids: int64 [N, F], one table key per categorical feature.
        dense: float32 [N, M], standardized numbers.
        labels: float32 [N, T], 0 or 1, one column per task.
        weight: float32 [N], the survey's ``instance_weight``: the number of people that the row
            represents. The weight is for weighted evaluation, and is not a feature.
        age: float32 [N], the age in years, as in the file. The column `age` serves to choose rows
            for evaluation; `dense` contains the standardized age.
    """

    ids: np.ndarray
    dense: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    age: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def arrays(self) -> Batch:
        """Return the columns under the names of `datasets.common.batches`: ids, dense, label."""
        return {"ids": self.ids, "dense": self.dense, "label": self.labels}

    def _rows(self, chosen: np.ndarray) -> Split:
        return Split(**take_rows(vars(self), chosen))


@dataclass(frozen=True)
class CensusData:
    """Census-Income as arrays that a model can read.

    Args:
        train: Training rows.
        validation: Validation rows, split from the training rows; no rows if ``validation`` was 0.
        test: The 99,762 test rows.
        id_names: Names of the F categorical features.
        dense_names: Names of the M numeric features.
        tasks: Names of the T tasks.
    """

    train: Split
    validation: Split
    test: Split
    id_names: tuple[str, ...]
    dense_names: tuple[str, ...]
    tasks: tuple[str, ...]


def load(
    data_dir: str | os.PathLike[str],
    tasks: Sequence[str] = ("income",),
    exact: Sequence[str] = MONEY,
    min_count: int = 5,
    validation: float = 0.0,
    seed: int = 0,
) -> CensusData:
    """Read both files.

    Args:
        data_dir: Directory with ``census-income.data.gz`` and ``census-income.test.gz``.
        tasks: Names of the label columns: ``income`` (above 50,000 dollars), ``never_married``, or
            both (default ``("income",)``). If ``never_married`` is a task, marital status is not a
            feature, because the task's label is computed from marital status.
        exact: Numeric columns that become categorical features (one category per value), in
            addition to numeric features (default: the four amounts).
        min_count: A value of an ``exact`` column has its own key if at least `min_count` training
            rows contain the value; all other values of the column share one key. `min_count` is at
            least 1 (default 5).
        validation: Share of the training rows to use for validation, in [0, 1) (default 0).
        seed: Seed of the random choice of the validation rows.

    Returns:
        Features and labels. `mindspore_rec.category_keys` makes the keys of each categorical column
        from the column's name and its values. An amount of money x becomes log(1 + x). Numbers are
        standardized with the mean and standard deviation of the training split.

    Raises:
        ValueError: an argument is out of range, or a file is missing or is not Census-Income.

    Example:
        >>> data = load(os.environ["MINDSPORE_REC_CENSUS_DIR"])  # doctest: +SKIP
        >>> data.train.ids.shape, data.test.dense.shape  # doctest: +SKIP
        ((199523, 37), (99762, 7))
    """
    tasks, exact = _checked_names(tasks, exact)
    if min_count < 1:
        raise ValueError(f"min_count must be at least 1, got {min_count}")
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be in [0, 1), got {validation}")
    train, test = (read_table(Path(data_dir) / FILES[name]) for name in ("train", "test"))
    held_out = uniform(stream_words(seed, "census", np.arange(len(train)))) < validation
    if held_out.all():
        raise ValueError(f"validation must leave training rows, got {validation}")
    fitted = _Encoder(train[~held_out], tasks, exact, min_count)
    both = fitted.split(train)
    return CensusData(
        train=both._rows(~held_out),
        validation=both._rows(held_out),
        test=fitted.split(test),
        id_names=fitted.id_names,
        dense_names=NUMERIC,
        tasks=tasks,
    )


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return one file as a table of 42 named columns.

    Args:
        path: path of ``census-income.data`` or ``census-income.test``; a name that ends in ``.gz``
            is a gzip file.

    Returns:
        The table. The quantities and the weight are float64; all other columns contain the text of
        the file. ``NA`` and ``?`` are ordinary values.

    Raises:
        ValueError: the file is missing, the file has no rows, the number of columns is not 42, a
            quantity is not a number, or the income column has an unknown value.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path} is not there: see python -m datasets.census_income.download")
    numbers = dict.fromkeys((*NUMERIC, WEIGHT), np.float64)
    try:
        table = pd.read_csv(
            path,
            header=None,
            names=list(COLUMNS),
            skipinitialspace=True,
            na_filter=False,
            dtype={name: numbers.get(name, object) for name in COLUMNS},
        )
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a Census-Income file: {error}") from error
    if not len(table):
        raise ValueError(f"{path} is not a Census-Income file: it has no rows")
    unknown = set(table[INCOME].unique()) - set(_INCOME_TEXTS)
    if unknown:
        examples = sorted(map(str, unknown))[:3]
        raise ValueError(f"{path} must have {sorted(_INCOME_TEXTS)} as column 42, found {examples}")
    return table


class _Encoder:
    """Encode rows with the training split's frequent values, means and standard deviations."""

    def __init__(
        self, train: pd.DataFrame, tasks: tuple[str, ...], exact: tuple[str, ...], min_count: int
    ) -> None:
        self._tasks = tasks
        self._categories = category_columns(tasks)
        self._common = {}
        for name in exact:
            values, counts = np.unique(train[name].to_numpy(), return_counts=True)
            self._common[name] = values[counts >= min_count]
        numbers = _numbers(train)
        self._mean, spread = numbers.mean(axis=0), numbers.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self.id_names = (*self._categories, *(f"{name}_exact" for name in exact))

    def split(self, table: pd.DataFrame) -> Split:
        keys = [category_keys(name, table[name]) for name in self._categories]
        keys += [self._exact_keys(name, table[name].to_numpy()) for name in self._common]
        return Split(
            ids=np.stack(keys, axis=1),
            dense=((_numbers(table) - self._mean) / self._spread).astype(np.float32),
            labels=np.stack([_label(table, task) for task in self._tasks], axis=1),
            weight=table[WEIGHT].to_numpy(np.float32),
            age=table[AGE].to_numpy(np.float32),
        )

    def _exact_keys(self, name: str, values: np.ndarray) -> np.ndarray:
        field = f"{name}_exact"
        keys = category_keys(field, values.astype(np.int64))
        keys[~np.isin(values, self._common[name])] = category_keys(field, [RARE])[0]
        return keys


def _numbers(table: pd.DataFrame) -> np.ndarray:
    columns = [table[name].to_numpy() for name in NUMERIC]
    return np.stack(
        [
            np.log1p(column) if name in MONEY else column
            for name, column in zip(NUMERIC, columns, strict=True)
        ],
        axis=1,
    )


def _label(table: pd.DataFrame, task: str) -> np.ndarray:
    if task == "income":
        return table[INCOME].map(_INCOME_TEXTS).to_numpy(np.float32)
    return (table[MARITAL] == _NEVER_MARRIED).to_numpy(np.float32)


def _checked_names(
    tasks: Sequence[str], exact: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for name, values, legal in (("tasks", tasks, TASKS), ("exact", exact, NUMERIC)):
        if isinstance(values, str) or len(set(values)) != len(values) or set(values) - set(legal):
            raise ValueError(f"{name} must be different names out of {legal}, got {values!r}")
    if not tasks:
        raise ValueError(f"tasks must name at least one of {TASKS}")
    return tuple(tasks), tuple(exact)
