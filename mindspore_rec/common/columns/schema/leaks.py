# SPDX-License-Identifier: Apache-2.0
"""Find columns that decide the label, such as copies of the label and facts known only later."""

from __future__ import annotations

import numpy as np

from mindspore_rec.common.columns.schema.profile import Profile

__all__ = ["LEAK_AUC", "LEAST_OF_EACH", "leak_of"]

LEAK_AUC = 0.999
"""If a column's values alone have an AUC above this value, the column decides the label."""

LEAST_OF_EACH = 10
"""Minimum number of rows per label; with fewer, a column often divides labels by chance."""

_ROWS_OF_A_BIN = 16
_MOST_BINS = 2000
_LEAST_HALF = LEAST_OF_EACH // 2


def leak_of(column: Profile, label: np.ndarray, seed: int = 0) -> str | None:
    """Return a text on how a column decides the label; None if the column does not decide it.

    The rows are divided into two halves. In each half, the mean label of each value is computed,
    and the rows of the other half are ordered by these means. If a value occurs only in one half,
    the mean label of all rows is used, so a column of unique ids is not a leak, although each id
    occurs with only one label. If at least half of the rows have a value that occurs in both
    halves, a second AUC is computed from only these rows, and the greater AUC is used. For a column
    of numbers, rows are also ordered by the numbers themselves and by intervals of numbers. A
    missing value counts as a value.

    Args:
        column: profile of the column.
        label: the label of each row, float64 ``[rows]``. A label with more than two values is
            divided into values above its median and other values.
        seed: seed of the random division of the rows into halves. Default: 0.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> label = np.arange(100) % 2
        >>> paid = profile_of("paid", pa.array(np.where(label, 9.5, np.nan)))
        >>> leak_of(paid, label.astype(float))
        'in held-out rows its value alone gives an AUC of 1.0000'
        >>> leak_of(profile_of("id", pa.array(np.arange(100)[::-1] * 7 % 100)), label) is None
        True
    """
    positive = _two_values(label)
    if min(positive.sum(), (~positive).sum()) < LEAST_OF_EACH:
        return None
    numbers = column.family in ("number", "time") and column.numbers is not None
    if numbers and column.lengths is None and _order_decides(column, positive):
        return "the order of its values separates the labels"
    codes = _codes(column)
    first = np.random.default_rng(seed).random(len(codes)) < 0.5
    auc = _held_out_auc(codes, positive, first)
    if numbers and column.lengths is None and column.there >= 2 * _ROWS_OF_A_BIN:
        auc = max(auc, _held_out_auc(_bins(column), positive, first))
    if auc <= LEAK_AUC:
        return None
    return f"in held-out rows its value alone gives an AUC of {auc:.4f}"


def is_copy(column: Profile, label: Profile) -> bool:
    """Return True if each value of the column belongs to one value of the label, and vice versa.

    If there are fewer than 20 rows, or most values occur once, the result is False, because the
    column and the label may agree by chance.

    Example:
        >>> import pyarrow as pa
        >>> from mindspore_rec.common.columns.schema.profile import profile_of
        >>> label = profile_of("y", pa.array([0, 1, 1, 0] * 5))
        >>> is_copy(profile_of("word", pa.array(["no", "yes", "yes", "no"] * 5)), label)
        True
    """
    if column.lengths is not None or column.family == "other" or column.rows < 2 * LEAST_OF_EACH:
        return False
    sides = [each.distinct + bool(each.missing.any()) for each in (column, label)]
    if sides[0] != sides[1] or 2 * sides[0] > column.rows:
        return False
    return len(np.unique(column.codes * (label.distinct + 1) + label.codes)) == sides[0]


def _two_values(label: np.ndarray) -> np.ndarray:
    if np.isin(label, (0.0, 1.0)).all():
        return label == 1.0
    return label > np.median(label)


def _codes(column: Profile) -> np.ndarray:
    """Return a code for the value of each row; a list is represented by its length."""
    if column.lengths is not None:
        return np.minimum(column.lengths, 1 << 20) + 1
    return column.codes + 1


def _bins(column: Profile) -> np.ndarray:
    numbers = column.row_numbers()
    there = ~column.missing & ~np.isnan(numbers)
    bins = min(_MOST_BINS, int(there.sum()) // _ROWS_OF_A_BIN)
    # method="lower": an edge interpolated between infinite numbers would be NaN.
    edges = np.quantile(numbers[there], np.linspace(0, 1, bins + 1)[1:-1], method="lower")
    return np.where(there, np.searchsorted(np.unique(edges), numbers, side="right") + 1, 0)


def _order_decides(column: Profile, positive: np.ndarray) -> bool:
    assert column.numbers is not None
    size = column.distinct
    there = ~column.missing
    ones = np.bincount(column.codes[there & positive], minlength=size)
    zeros = np.bincount(column.codes[there & ~positive], minlength=size)
    if min(ones.sum(), zeros.sum()) < LEAST_OF_EACH or there.mean() < 0.5:
        return False
    auc = _auc(column.numbers, ones, zeros)
    return max(auc, 1 - auc) > LEAK_AUC


def _held_out_auc(codes: np.ndarray, positive: np.ndarray, first: np.ndarray) -> float:
    """Predict the labels of each half by the means of the other half; return the lower AUC."""
    size = int(codes.max()) + 1
    ones = [np.bincount(codes[half & positive], minlength=size) for half in (first, ~first)]
    zeros = [np.bincount(codes[half & ~positive], minlength=size) for half in (first, ~first)]
    aucs = []
    for learn, held_out in ((0, 1), (1, 0)):
        means = (ones[learn] + positive.mean()) / (ones[learn] + zeros[learn] + 1)
        known = ones[learn] + zeros[learn] > 0
        auc = _auc(means, ones[held_out], zeros[held_out])
        inside = ones[held_out][known], zeros[held_out][known]
        if sum(map(np.sum, inside)) * 4 >= len(codes) and min(map(np.sum, inside)) >= _LEAST_HALF:
            auc = max(auc, _auc(means[known], *inside))
        aucs.append(auc)
    return min(aucs)


def _auc(scores: np.ndarray, ones: np.ndarray, zeros: np.ndarray) -> float:
    """Return the AUC of scores; ties count half.

    `ones[i]` and `zeros[i]` are the numbers of rows with label 1 and 0 that have `scores[i]`.
    """
    if not ones.any() or not zeros.any():
        return 0.5
    order = np.argsort(scores)
    starts = np.flatnonzero(np.diff(scores[order], prepend=np.nan) != 0)
    ones, zeros = np.add.reduceat(ones[order], starts), np.add.reduceat(zeros[order], starts)
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + zeros / 2)).sum() / (float(ones.sum()) * float(zeros.sum())))
