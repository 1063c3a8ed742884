# SPDX-License-Identifier: Apache-2.0
"""LightGBM, CatBoost and logistic regression on the raw columns of a task.

Each learner reads the columns unchanged. Text columns become categories, in the type that each
learner uses for categories. The time is replaced by the hour and the weekday. A list is replaced by
a flag per value (`|` separates the values). LightGBM and CatBoost have their default settings, but
up to 2,000 trees. LightGBM and CatBoost stop when the AUC of the validation rows has not risen for
50 trees.

`LightGBM-codes` reads the code of each category as a numeric feature. `LightGBM-statistics` and
`CatBoost-statistics` also read target statistics: the mean label and the frequency of each value,
and of each pair of values in a cross. The target statistics are computed by the `TargetStatistics`
in the schema from `infer_schema`, from the rows on which the network was trained. `LightGBM-refit`
trains again on training and validation rows together, with the same number of trees, as
`train.refit` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.trees.tasks import LABEL, TIME, Parts
from mindspore_rec import Schema
from mindspore_rec.data import infer_schema, read

__all__ = ["RIVALS", "Scores"]

Scores = dict[str, np.ndarray]
"""Probabilities of the validation and test rows, by the name of the part."""

_MOST_TREES, _PATIENCE = 2_000, 50


def _features(parts: Parts) -> dict[str, pd.DataFrame]:
    """Return the features of each part; the training rows define the categories of text columns."""
    frames = {name: getattr(parts, name) for name in ("train", "valid", "test")}
    made = {name: _flat(frame) for name, frame in frames.items()}
    for column in made["train"]:
        if not pd.api.types.is_numeric_dtype(made["train"][column]):
            values = pd.CategoricalDtype(sorted(made["train"][column].dropna().unique()))
            for name in made:
                made[name][column] = made[name][column].astype(values)
    columns = list(made["train"])
    return {name: frame.reindex(columns=columns, fill_value=0) for name, frame in made.items()}


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    made = frame.drop(columns=[LABEL, TIME], errors="ignore").copy()
    if TIME in frame:
        made["hour"], made["weekday"] = frame[TIME].dt.hour, frame[TIME].dt.weekday
    if "genres" in made:
        flags = made.pop("genres").str.get_dummies("|")
        made = pd.concat([made, flags], axis=1)
    return made


def _with_statistics(parts: Parts, features: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the features, and the numbers that the schema's target statistics compute."""
    time = TIME if TIME in parts.train else None
    columns = list(infer_schema(parts.train, LABEL, time=time).columns)
    if not parts.by_time:
        columns = [
            replace(each, statistics="folds") if each.statistics else each  # type: ignore[type-var]
            for each in columns
        ]
    schema = Schema(columns).fit(parts.train)
    if not schema.has_statistics:
        return features
    schema.fit_statistics(read(parts.train, schema))
    ends = (".mean", ".count")
    chosen = [k for k, name in enumerate(schema.numbers) if name.endswith(ends)]
    made = {}
    for name, frame in features.items():
        rows = pa.RecordBatch.from_pandas(getattr(parts, name), preserve_index=False)
        arrays = next(iter(schema.arrow_batches([rows], training=name == "train")))
        numbers = np.array(arrays.column("numbers").to_pylist(), np.float32)[:, chosen]
        names = [schema.numbers[k] for k in chosen]
        statistics = pd.DataFrame(numbers, index=frame.index, columns=names)
        made[name] = pd.concat([frame, statistics], axis=1)
    return made


def _lightgbm(
    codes: bool = False, statistics: bool = False, refit: bool = False
) -> Callable[[Parts, int], Scores]:
    def scores(parts: Parts, seed: int) -> Scores:
        import lightgbm

        made = _features(parts)
        if codes:
            made = {
                name: frame.apply(lambda c: c.cat.codes if hasattr(c, "cat") else c)
                for name, frame in made.items()
            }
        if statistics:
            made = _with_statistics(parts, made)
        model = lightgbm.LGBMClassifier(
            n_estimators=_MOST_TREES, random_state=seed, n_jobs=os.cpu_count(), verbose=-1,
            bagging_seed=seed, feature_fraction_seed=seed,
        )  # fmt: skip
        model.fit(
            made["train"],
            parts.train[LABEL],
            eval_set=[(made["valid"], parts.valid[LABEL])],
            eval_metric="auc",
            callbacks=[lightgbm.early_stopping(_PATIENCE, first_metric_only=True, verbose=False)],
        )
        if refit:  # the trees that the validation rows chose, on all rows with labels
            rows = pd.concat([made["train"], made["valid"]])
            labels = pd.concat([parts.train[LABEL], parts.valid[LABEL]])
            model = model.set_params(n_estimators=model.best_iteration_).fit(rows, labels)
        return {name: _probabilities(model, made[name]) for name in ("valid", "test")}

    return scores


def _catboost(parts: Parts, seed: int, statistics: bool = False) -> Scores:
    import catboost

    made = _features(parts)
    if statistics:
        made = _with_statistics(parts, made)
    texts = [name for name, column in made["train"].items() if hasattr(column, "cat")]
    for frame in made.values():
        for name in texts:
            frame[name] = frame[name].astype(object).fillna("").astype(str)
    model = catboost.CatBoostClassifier(
        iterations=_MOST_TREES, random_seed=seed, eval_metric="AUC", verbose=False,
        early_stopping_rounds=_PATIENCE, cat_features=texts, allow_writing_files=False,
        thread_count=os.cpu_count(),
    )  # fmt: skip
    model.fit(made["train"], parts.train[LABEL], eval_set=(made["valid"], parts.valid[LABEL]))
    return {name: _probabilities(model, made[name]) for name in ("valid", "test")}


def _logistic(parts: Parts, seed: int) -> Scores:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, QuantileTransformer

    made = _features(parts)
    for frame in made.values():
        for name, column in frame.items():
            if hasattr(column, "cat"):
                frame[name] = column.astype(object).fillna("").astype(str)
    texts = [n for n, column in made["train"].items() if not pd.api.types.is_numeric_dtype(column)]
    texts += [name for name in ("hour", "weekday") if name in made["train"]]
    numbers = [name for name in made["train"] if name not in texts]
    for frame in made.values():
        frame[numbers] = frame[numbers].fillna(0)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), texts),
        (QuantileTransformer(random_state=seed), numbers),
    )
    model: Any = make_pipeline(columns, LogisticRegression(max_iter=300))
    model.fit(made["train"], parts.train[LABEL])
    return {name: _probabilities(model, made[name]) for name in ("valid", "test")}


def _probabilities(model: Any, features: pd.DataFrame) -> np.ndarray:
    return np.asarray(model.predict_proba(features), np.float64)[:, 1]


RIVALS: dict[str, Callable[[Parts, int], Scores]] = {
    "LightGBM": _lightgbm(),
    "LightGBM-codes": _lightgbm(codes=True),
    "LightGBM-statistics": _lightgbm(statistics=True),
    "LightGBM-refit": _lightgbm(refit=True),
    "CatBoost": _catboost,
    "CatBoost-statistics": partial(_catboost, statistics=True),
    "logistic-regression": _logistic,
}
"""Functions that train on the training rows and return the scores, by name of the learner."""
