# SPDX-License-Identifier: Apache-2.0
"""Logistic regression and boosted trees, trained on the models' training rows.

The module needs scikit-learn (`pip install scikit-learn`); LightGBM's trees also need the package
lightgbm (`pip install lightgbm`). The settings of each baseline are chosen by AUC on a fifth of the
training rows; the baseline is then fitted to all training rows. Test rows have no influence on the
choice of settings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from mindspore_rec.metrics import functional
from models.common.data import Data

__all__ = [
    "BASELINES",
    "Rows",
    "boosted_trees",
    "lightgbm_trees",
    "logistic_regression",
    "of_data",
    "rows_of",
]

HELD_OUT = 5  # one row of so many chooses the settings
NATIVE_CATEGORIES = 255  # the most that scikit-learn's trees take as categories

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""ids int64 [N, F], numbers float32 [N, M], label [N]."""


def rows_of(batches: Iterable[dict[str, np.ndarray]]) -> Rows:
    """Concatenate batches, and return the rows as one batch.

    Example:
        >>> one = {"ids": np.array([[1, 2]]), "label": np.ones((1, 1), np.float32)}
        >>> [part.shape for part in rows_of([one, one])]
        [(2, 2), (2, 0), (2,)]
    """
    kept = list(batches)
    ids, label = (np.concatenate([batch[name] for batch in kept]) for name in ("ids", "label"))
    dense = [batch["dense"] for batch in kept if "dense" in batch]
    numbers = np.concatenate(dense) if dense else np.zeros((len(ids), 0), np.float32)
    return ids, numbers, label[:, 0]


def logistic_regression(train: Rows, test: Rows, most_rows: int = 300_000) -> dict[str, Any]:
    """Evaluate logistic regression: one weight per id and per number.

    Args:
        train: training rows.
        test: test rows.
        most_rows: maximum number of training rows that are used to choose the L2 strength. Default:
            300,000.

    Returns:
        `auc` and `log_loss` on the test rows, and `settings`.
    """
    from sklearn.linear_model import LogisticRegression

    def fit(rows: Rows, C: float) -> tuple[Any, Any]:
        matrix = _one_hot(rows)
        model = LogisticRegression(C=C, max_iter=1000, tol=1e-4)
        model.fit(matrix(rows), rows[2])
        return model, matrix

    return _chosen(fit, [{"C": c} for c in (0.1, 0.3, 1.0, 3.0)], train, test, most_rows)


def boosted_trees(train: Rows, test: Rows, most_rows: int = 300_000) -> dict[str, Any]:
    """Evaluate histogram gradient boosting; fields with many ids are encoded by mean labels.

    The model reads fields with fewer than 255 ids as native categories. In fields with at least 255
    ids, two numbers replace each id: the id's mean label (cross-fitted and smoothed by
    scikit-learn's TargetEncoder) and the id's count.

    Args: as for `logistic_regression`.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    def fit(rows: Rows, **settings: Any) -> tuple[Any, Any]:
        table = _Encoder(rows)
        model = HistGradientBoostingClassifier(
            max_iter=500,
            early_stopping=True,
            validation_fraction=0.1,
            n_iter_no_change=20,
            categorical_features=table.categorical,
            random_state=0,
            **settings,
        )
        model.fit(table.fitted, rows[2])
        return model, table

    grid = [
        {"learning_rate": rate, "max_leaf_nodes": leaves, "min_samples_leaf": least}
        for rate, leaves, least in ((0.1, 31, 20), (0.05, 31, 100), (0.05, 63, 100))
    ]
    return _chosen(fit, grid, train, test, most_rows)


def lightgbm_trees(train: Rows, test: Rows, most_rows: int = 300_000) -> dict[str, Any]:
    """Evaluate LightGBM; all ids are categories, which the trees split by sorted gradients.

    On millions of rows, LightGBM takes minutes, while scikit-learn's trees take hours. LightGBM
    stops adding trees when the AUC or the log loss on held-out rows stops improving.

    Args: as for `logistic_regression`.

    Raises:
        ValueError: LightGBM is not installed.
    """
    try:
        lightgbm = importlib.import_module("lightgbm")
    except ImportError as error:
        raise ValueError(
            f"the baseline 'LightGBM' needs: pip install lightgbm ({error})"
        ) from error

    def fit(rows: Rows, **settings: Any) -> tuple[Any, Any]:
        codes = _codes(rows)
        table = codes(rows)
        held_out = np.arange(len(table)) % HELD_OUT == 1
        model = lightgbm.LGBMClassifier(
            n_estimators=3000, min_child_samples=100, verbosity=-1, random_state=0, **settings
        )
        model.fit(
            table[~held_out],
            rows[2][~held_out],
            categorical_feature=list(range(rows[0].shape[1])),
            eval_set=[(table[held_out], rows[2][held_out])],
            eval_metric="auc",
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        )
        return model, codes

    grid = [
        {"learning_rate": 0.1, "num_leaves": leaves, "cat_smooth": smooth, "cat_l2": smooth}
        for leaves, smooth in ((31, 10.0), (31, 50.0), (127, 50.0))
    ]
    return _chosen(fit, grid, train, test, most_rows)


BASELINES = {
    "logistic regression": logistic_regression,
    "boosted trees": boosted_trees,
    "LightGBM": lightgbm_trees,
}


def _chosen(
    fit: Callable[..., tuple[Any, Any]],
    grid: list[dict[str, Any]],
    train: Rows,
    test: Rows,
    most_rows: int,
) -> dict[str, Any]:
    """Choose settings on the first `most_rows` rows, fit to all rows, and return test metrics."""
    some = tuple(part[:most_rows] for part in train)
    held_out = np.arange(len(some[0])) % HELD_OUT == 0
    kept: Any = tuple(part[~held_out] for part in some)
    validation: Any = tuple(part[held_out] for part in some)
    scores = [
        functional.auc(validation[2], _scores(*fit(kept, **settings), validation))
        for settings in grid
    ]
    best = grid[int(np.argmax(scores))]
    p = _scores(*fit(train, **best), test)
    return {
        "auc": functional.auc(test[2], p),
        "log_loss": functional.log_loss(test[2], p),
        "settings": best,
    }


def _scores(model: Any, encode: Any, rows: Rows) -> np.ndarray:
    return model.predict_proba(encode(rows))[:, 1]


def _one_hot(rows: Rows) -> Callable[[Rows], Any]:
    from scipy.sparse import csr_matrix, hstack
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    ids = OneHotEncoder(handle_unknown="ignore", dtype=np.float32).fit(rows[0])
    numbers = StandardScaler().fit(rows[1]) if rows[1].shape[1] else None

    def matrix(some_rows: Rows) -> Any:
        parts = [ids.transform(some_rows[0])]
        if numbers is not None:
            parts.append(csr_matrix(numbers.transform(some_rows[1])))
        return hstack(parts, format="csr")

    return matrix


def _codes(rows: Rows) -> Callable[[Rows], np.ndarray]:
    from sklearn.preprocessing import OrdinalEncoder

    ids = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.float32
    ).fit(rows[0])

    def table(some_rows: Rows) -> np.ndarray:
        return np.concatenate([ids.transform(some_rows[0]), some_rows[1]], axis=1, dtype=np.float32)

    return table


class _Encoder:
    """Encodes ids as categories, or as mean labels and counts; leaves numbers unchanged."""

    def __init__(self, rows: Rows) -> None:
        from sklearn.preprocessing import OrdinalEncoder, TargetEncoder

        ids, numbers, label = rows
        values = [len(np.unique(column)) for column in ids.T]
        self.few = np.array([count < NATIVE_CATEGORIES for count in values])
        self.codes = OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=np.nan, dtype=np.float64
        ).fit(ids[:, self.few])
        self.means = TargetEncoder(target_type="binary", random_state=0)
        self.counts = [pd.Series(column).value_counts() for column in ids[:, ~self.few].T]
        many = ids[:, ~self.few]
        means = self.means.fit_transform(many, label) if many.shape[1] else many
        self.fitted = self._table(ids, numbers, means)
        self.categorical = np.arange(self.fitted.shape[1]) < self.few.sum()

    def __call__(self, rows: Rows) -> np.ndarray:
        many = rows[0][:, ~self.few]
        means = self.means.transform(many) if many.shape[1] else many
        return self._table(rows[0], rows[1], means)

    def _table(self, ids: np.ndarray, numbers: np.ndarray, means: np.ndarray) -> np.ndarray:
        many = ids[:, ~self.few]
        counts = [
            value_counts.reindex(column).fillna(0).to_numpy()[:, None]
            for value_counts, column in zip(self.counts, many.T, strict=True)
        ]
        few = self.codes.transform(ids[:, self.few]) if self.few.any() else ids[:, self.few]
        return np.concatenate([few, means, *counts, numbers], axis=1, dtype=np.float64)


def of_data(name: str, data: Data) -> dict[str, Any]:
    """Evaluate a baseline on a data set.

    Args:
        name: name in `BASELINES`.
        data: the data set; one epoch of the data must fit into memory.
    """
    return BASELINES[name](rows_of(data.train(1 << 16, 1)), rows_of(data.test))
