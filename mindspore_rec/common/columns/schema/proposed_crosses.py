# SPDX-License-Identifier: Apache-2.0
"""Propose crosses: pairs of columns that tell more about the label than each column alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.schema.column import CrossColumn
from mindspore_rec.common.columns.schema.inference import Inferred, InferredColumn
from mindspore_rec.common.columns.schema.profile import profile_of
from mindspore_rec.common.columns.schema.schema import Schema

__all__ = ["with_crosses"]

_MOST_COLUMNS = 6  # whose pairs are tried: the columns with the most values
_MOST_CROSSES = 2
_ADMISSION = 3  # rows of a pair from which on it has a vector of its own
_LEAST_GAIN = 0.01  # of the explained share
_LEAST_RECURRING = 0.02  # share of the rows with a pair that another row has
_LEAST_NEW = 1.2  # pairs per value, below which one column nearly determines the other
_FIRST = 0.7  # share of the rows that the model is fitted to
_FEWEST_ROWS = 1_000
_RIDGE, _ROUNDS = 1.0, 15


def with_crosses(inferred: Inferred, table: pa.Table) -> Inferred:
    """Add crosses to a proposed schema: pairs of columns whose statistics are useful.

    The candidates are all pairs of columns with statistics of labels. If more than six columns have
    statistics, only the six columns with the most different values are paired. For each pair, two
    linear models learn to predict the labels from the statistics: one model without the pair, and
    one model with the pair. The models learn from a part of the rows, and are tested on the other
    rows. The pair is proposed if, on the other rows, the model with the pair explains at least one
    percentage point more of the labels' entropy or variance. If the schema has a column of times,
    the models learn from the earlier rows and are tested on the later rows. At most two pairs are
    proposed. If there are fewer than 1,000 rows, no pair is proposed.

    Args:
        inferred: the proposal.
        table: sample of rows, such as all rows of some users. In the sample, a pair of values must
            recur as often as in all rows.
    """
    candidates = _candidates(inferred, table) if table.num_rows >= _FEWEST_ROWS else []
    if not candidates:
        return inferred
    statistics = _Statistics(inferred, candidates, table)
    entries = list(inferred.entries)
    chosen: list[_Candidate] = []
    before = statistics.explained([])
    while candidates and len(chosen) < _MOST_CROSSES:
        shares = [statistics.explained([*chosen, each]) for each in candidates]
        best = int(np.argmax(shares))
        if shares[best] - before < _LEAST_GAIN:
            break
        chosen.append(candidates.pop(best))
        entries.append(_entry(chosen[-1], before, shares[best]))
        before = shares[best]
    return replace(inferred, entries=tuple(entries))


@dataclass(frozen=True)
class _Candidate:
    """A cross, and the number of its different values in the rows."""

    column: CrossColumn
    distinct: int


def _entry(cross: _Candidate, before: float, after: float) -> InferredColumn:
    """Return the column of the proposal, with a sentence that says why it is proposed."""
    one, two = cross.column.columns
    why = (
        f"Pairs of {one!r} and {two!r}: with their mean labels, a linear model explains "
        f"{after:.1%} of the label instead of {before:.1%}."
    )
    return InferredColumn(cross.column, why, cross.distinct, 0.0)


def _candidates(inferred: Inferred, table: pa.Table) -> list[_Candidate]:
    """Return the crosses of two columns that both have statistics and whose pairs of values recur.

    A pair adds no information if one of its columns determines the other.
    """
    entries = [each for each in inferred.entries if each.column.statistics is not None]
    most = sorted(entries, key=lambda each: -each.distinct)[:_MOST_COLUMNS]
    names = [each.column.name for each in entries if each in most]
    codes = {name: profile_of(name, table.column(name)).codes for name in names}
    alone = {name: _distinct(each) for name, each in codes.items()}
    taken = {each.column.name for each in inferred.entries}
    made = []
    for one, two in itertools.combinations(names, 2):
        distinct = _distinct(codes[one], codes[two])
        is_new = distinct >= _LEAST_NEW * max(alone[one], alone[two])
        if not is_new or distinct > (1 - _LEAST_RECURRING) * table.num_rows:
            continue
        name = f"{one}_and_{two}"
        while name in taken:
            name += "_"
        by = inferred.column(one).column.statistics
        cross = CrossColumn(name, (one, two), admission=_ADMISSION, statistics=by)
        made.append(_Candidate(cross, distinct))
    return made


def _distinct(*codes: np.ndarray) -> int:
    return len(np.unique(np.stack(codes, axis=1), axis=0))


class _Statistics:
    """Compute statistics of labels, and fit linear models that predict labels from statistics.

    Args:
        inferred: the proposal.
        candidates: crosses that may be added to the proposal.
        table: the rows.
    """

    def __init__(
        self, inferred: Inferred, candidates: Sequence[_Candidate], table: pa.Table
    ) -> None:
        crosses = [each.column for each in candidates]
        schema = Schema([*inferred.columns, *crosses]).fit(table)
        has_time = schema.time is not None
        pipeline = schema.pipeline.with_times() if has_time else schema.pipeline
        rows = table.combine_chunks().to_batches()[0]
        arrays, _ = pipeline.batch(rows, learn=False, with_time=False, training=True)
        order = np.arange(len(rows))
        if has_time:
            order = np.argsort(arrays["time"], kind="stable")
        self._numbers = arrays["numbers"][order].astype(np.float64)
        self._labels = arrays["label"][order].astype(np.float64)
        self._is_binary = [each.binary for each in schema.labels]
        names = [name.rpartition(".")[0] for name in schema.numbers]
        self._places = {
            each.name: [k for k, name in enumerate(names) if name == each.name]
            for each in schema.columns
            if each.statistics is not None
        }
        self._crosses = {each.name for each in crosses}

    def explained(self, crosses: Sequence[_Candidate]) -> float:
        """Return the share of the entropy or variance that a model explains, as a mean over labels.

        Args:
            crosses: candidates whose statistics the model reads. The model also reads the
                statistics of all columns of the proposal.
        """
        read = {each.column.name for each in crosses}
        chosen = [
            place
            for name, places in self._places.items()
            if name in read or name not in self._crosses
            for place in places
        ]
        numbers = self._numbers[:, chosen]
        inputs = np.concatenate([np.ones((len(numbers), 1)), numbers, numbers**2], axis=1)
        pairs = zip(self._labels.T, self._is_binary, strict=True)
        return float(np.mean([_explained(inputs, *each) for each in pairs]))


def _explained(inputs: np.ndarray, label: np.ndarray, is_binary: bool) -> float:
    """Fit a model to the first rows, and test the model on the other rows.

    Return the share of the other rows' entropy, or variance if the label is a number, that the
    model explains.
    """
    first = int(_FIRST * len(label))
    usual = float(label[:first].mean())
    if not is_binary:
        x, y = inputs[:first], label[:first] - usual
        weights = np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ y)
        error = label[first:] - usual - inputs[first:] @ weights
        total = float(np.square(label[first:] - usual).sum())
        return 1 - float(np.square(error).sum()) / total if total else 0.0
    usual = min(max(usual, 1e-6), 1 - 1e-6)
    start = float(np.log(usual / (1 - usual)))
    learned = _fitted_odds(inputs[:first], label[:first], start)
    left = _entropy(label[first:], _probability(start + inputs[first:] @ learned))
    return 1 - left / _entropy(label[first:], np.full(len(label) - first, usual))


def _fitted_odds(inputs: np.ndarray, label: np.ndarray, start: float) -> np.ndarray:
    """Return the weights of a logistic regression with the intercept `start`."""

    def loss(weights: np.ndarray) -> float:
        entropy = len(label) * _entropy(label, _probability(start + inputs @ weights))
        return entropy + _RIDGE / 2 * float(weights @ weights)

    weights = np.zeros(inputs.shape[1])
    for _ in range(_ROUNDS):  # Newton's method, with shorter steps if a step goes too far
        mean = _probability(start + inputs @ weights)
        slope = inputs.T @ (label - mean) - _RIDGE * weights
        curve = (inputs * (mean * (1 - mean))[:, None]).T @ inputs
        step = np.linalg.solve(curve + _RIDGE * np.eye(len(weights)), slope)
        before = loss(weights)
        while loss(weights + step) > before and np.abs(step).max() > 1e-6:
            step = step / 2
        weights = weights + step
        if np.abs(step).max() < 1e-3:
            break
    return weights


def _probability(odds: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))))


def _entropy(label: np.ndarray, mean: np.ndarray) -> float:
    return float(-np.where(label > 0.5, np.log(mean), np.log1p(-mean)).mean())
