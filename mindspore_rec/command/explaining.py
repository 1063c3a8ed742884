# SPDX-License-Identifier: Apache-2.0
"""Explanations of a trained model: importance of columns, surprising rows, similar ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mindspore_rec.command.figures import figures_of
from mindspore_rec.command.text import value_text
from mindspore_rec.common.metrics import functional

__all__ = ["Importance", "Neighbour", "column_importance", "nearest", "surprising_rows"]

Floats = npt.NDArray[np.floating]
Predict = Callable[[pa.Table], Floats]


@dataclass(frozen=True)
class Importance:
    """Loss of accuracy if a column's values are shuffled among the rows.

    Attributes:
        column: name of the column that is shuffled.
        auc_drop: AUC of the original rows minus AUC with the shuffled column.
        log_loss_rise: log loss with the shuffled column minus log loss of the original rows.
    """

    column: str
    auc_drop: float
    log_loss_rise: float


@dataclass(frozen=True)
class Neighbour:
    """A value whose row in the table is similar to the row of another value.

    Attributes:
        value: the similar value.
        cosine: cosine of the angle between the embeddings of the two values, in [-1, 1].
    """

    value: Any
    cosine: float


def column_importance(
    predict: Predict,
    rows: pa.Table,
    label: Floats,
    columns: Sequence[str],
    seed: int = 0,
    together: Mapping[str, Sequence[str]] | None = None,
) -> list[Importance]:
    """Return each column's permutation importance, the most important column first.

    Source: Breiman 2001, Random Forests (https://doi.org/10.1023/A:1010933404324), section 10.

    Args:
        predict: function that takes rows and returns probabilities `[N]`.
        rows: rows with known labels.
        label: labels, 0 or 1, `[N]`.
        columns: names of the columns to shuffle, one at a time.
        seed: seed of the permutations. Default: 0.
        together: dict from a column's name to further columns that receive the same permutation,
            such as the side columns of a history. Default: none.

    Example:
        >>> rows = pa.table({"a": [0.1, 0.2, 0.8, 0.9], "b": [1, 2, 3, 4]})
        >>> label = np.array([0, 0, 1, 1.0])
        >>> importances = column_importance(lambda t: t["a"].to_numpy(), rows, label, ["b", "a"])
        >>> [(each.column, each.auc_drop > 0) for each in importances]
        [('a', True), ('b', False)]
    """
    before = figures_of(label, predict(rows))
    importances: list[Importance] = []
    for name in columns:
        order = np.random.default_rng((seed, len(importances))).permutation(rows.num_rows)
        shuffled = rows
        for each in (name, *(together or {}).get(name, ())):
            place = rows.column_names.index(each)
            column = rows.column(place).take(order)
            shuffled = shuffled.set_column(place, rows.field(place), column)
        after = figures_of(label, predict(shuffled))
        drop, rise = before["auc"] - after["auc"], after["log_loss"] - before["log_loss"]
        importances.append(Importance(name, drop, rise))
    return sorted(importances, key=lambda each: -each.log_loss_rise)


def surprising_rows(label: Floats, prediction: Floats, most: int = 10) -> npt.NDArray[np.int64]:
    """Return the positions of the rows with the greatest log loss, the greatest first.

    Example:
        >>> surprising_rows(np.array([0, 1, 1.0]), np.array([0.2, 0.1, 0.9]), 2)
        array([1, 0])
    """
    loss = functional.example_log_loss(label > 0.5, prediction, from_logits=False)
    return np.argsort(-loss, kind="stable")[:most].astype(np.int64)


def nearest(values: Sequence[Any], rows: Floats, of: Any, most: int = 10) -> list[Neighbour]:
    """Return the values whose rows have the greatest cosine with the row of a value.

    Args:
        values: different values.
        rows: embedding of each value, `[N, dim]`.
        of: element of `values` whose nearest neighbours are returned.
        most: number of neighbours. Default: 10.

    Raises:
        ValueError: `of` is not in `values`, or the embedding of `of` is zero because it was never
            trained.

    Example:
        >>> rows = np.array([[1.0, 0], [2, 0.1], [0, 3]])
        >>> [each.value for each in nearest(["u1", "u2", "u3"], rows, "u1", most=1)]
        ['u2']
    """
    texts = [value_text(each) for each in values]
    if value_text(of) not in texts:
        raise ValueError(f"{of!r} is no value of the column in the rows that were read")
    place = texts.index(value_text(of))
    lengths = np.linalg.norm(rows, axis=1)
    if lengths[place] == 0:
        raise ValueError(f"{of!r} has no row in the table: it did not occur in the training")
    cosine = rows @ rows[place] / np.maximum(lengths * lengths[place], 1e-30)
    cosine[place] = -np.inf
    order = [k for k in np.argsort(-cosine, kind="stable") if lengths[k] > 0 and k != place]
    return [Neighbour(values[k], float(cosine[k])) for k in order[:most]]
