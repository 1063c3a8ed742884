# SPDX-License-Identifier: Apache-2.0
"""Baselines that predict the next item: popularity, item-kNN, EASE, a Markov chain, ALS and BPR.

A baseline has settings, learns from the events of a `Part`, and ranks the targets of the rows of
this `Part`. Ranks leave out the items of a row's history, which are never recommended. A "recent"
baseline reads only the newest 10 or 50 items of a history. The weight of each item is the weight of
the next newer item times `decay`.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from benchmarks.sequences.tasks import Part
from mindspore_rec.metrics import rank_targets

__all__ = ["BASELINES", "CO_OCCURRENCE", "GRIDS", "Scores", "installed", "ranks_of"]

_BLOCK = 512
_PAIRS = 256
_DAY = 86_400

Scores = Callable[[int, int], Any]


# ---- ranks


def ranks_of(part: Part, scores: Scores) -> np.ndarray:
    """Return the mid ranks of the rows' targets.

    Args:
        part: the rows.
        scores: function that returns the scores ``[end - begin, items]`` of the rows `begin` to
            `end` - 1.

    Raises:
        ValueError: a score is NaN.
    """
    rows, ranks = part.rows, np.empty(len(part.rows.target))
    for begin in range(0, len(rows.user), _BLOCK):
        end = min(begin + _BLOCK, len(rows.user))
        of_rows = np.array(scores(begin, end), np.float32)
        of_history, of_targets = (
            _pairs(values, offsets, begin, end)
            for values, offsets in (
                (rows.history, rows.history_offsets),
                (rows.target, rows.target_offsets),
            )
        )
        mine = of_rows[of_targets]
        if np.isnan(of_rows).any():
            raise ValueError("a score is NaN, which would be above no other score")
        of_rows[of_history] = of_rows[of_targets] = -np.inf
        first = rows.target_offsets[begin]
        for some in range(0, len(mine), _PAIRS):
            target = mine[some : some + _PAIRS, None]
            others = of_rows[of_targets[0][some : some + _PAIRS]]
            rank = 1.0 + (others > target).sum(1) + 0.5 * (others == target).sum(1)
            ranks[first + some : first + some + len(target)] = rank
    return ranks


def _pairs(
    values: np.ndarray, offsets: np.ndarray, begin: int, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays for the lists `begin` to `end` - 1: the list number of each value, counted
    from `begin`, and the values.
    """
    number = np.diff(offsets[begin : end + 1])
    return np.repeat(np.arange(end - begin), number), values[offsets[begin] : offsets[end]]


def seen(part: Part) -> sparse.csr_matrix:
    """Return a matrix ``[users, items]`` that has a 1 for each event before the part's time."""
    events = part.events
    ones = np.ones(len(events.user), np.float32)
    return sparse.csr_matrix((ones, (events.user, events.item)), (part.users, part.items))


def histories(part: Part, last: int | None = None, decay: float = 1.0) -> sparse.csr_matrix:
    """Return a matrix ``[rows, items]``: the weight of each item in the history of each row.

    Args:
        part: the rows.
        last: number of newest items that count in each history. Default: None, which means all
            items.
        decay: weight of an item, divided by the weight of the next newer item. Default: 1.
    """
    rows = part.rows
    number = np.diff(rows.history_offsets)
    row = np.repeat(np.arange(len(number)), number)
    age = np.repeat(rows.history_offsets[1:], number) - 1 - np.arange(len(row))
    counts = age < (len(row) + 1 if last is None else last)
    weights = decay ** age[counts].astype(np.float32)
    shape = (len(number), part.items)
    return sparse.csr_matrix((weights, (row[counts], rows.history[counts])), shape)


# ---- baselines


def popularity(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Rank items by their number of users in the last `days` days; None counts all events."""
    events, days = part.events, settings["days"]
    is_new = np.ones(len(events.time), bool)
    if days is not None:
        is_new = events.time > events.time.max() - days * _DAY
    counts = np.bincount(events.item[is_new], minlength=part.items).astype(np.float32)
    return ranks_of(part, lambda begin, end: np.tile(counts, (end - begin, 1)))


def item_knn(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Rank an item by the sum of its cosines with the items of the history."""
    return ranks_of(part, _by_cosines(part, settings))


def _by_cosines(part: Part, settings: Mapping[str, Any]) -> Scores:
    return _by_history(part, _cosines(part, settings["shrink"]), settings)


@lru_cache(maxsize=1)
def _cosines(part: Part, shrink: float) -> np.ndarray:
    """Return the cosines between the items' columns, ``[items, items]``."""
    matrix = seen(part)
    together = (matrix.T @ matrix).toarray()
    counts = together.diagonal().copy()
    np.fill_diagonal(together, 0)
    lengths = np.sqrt(np.outer(counts, counts)) + np.float32(shrink)
    together /= np.maximum(lengths, np.float32(1e-9))  # some items have no event
    return together


def ease(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Rank by EASE (Steck 2019, https://arxiv.org/abs/1905.03375)."""
    return ranks_of(part, _by_ease(part, settings))


def _by_ease(part: Part, settings: Mapping[str, Any]) -> Scores:
    return _by_history(part, _ease_weights(part, settings["ridge"]), settings)


@lru_cache(maxsize=1)
def _ease_weights(part: Part, ridge: float) -> np.ndarray:
    """Return EASE's weights ``[items, items]``.

    If there are fewer users than items, a smaller matrix is inverted: the product of the matrix
    ``[users, items]`` and its transpose.
    """
    matrix = seen(part)
    if part.items <= part.users:
        gram = (matrix.T @ matrix).toarray().astype(np.float64)
        gram[np.diag_indices(part.items)] += ridge
        inverse = _inverse(gram)
    else:
        dense = matrix.toarray()
        gram = (matrix @ matrix.T).toarray().astype(np.float64)
        gram[np.diag_indices(part.users)] += ridge
        inverse = dense.T @ (_inverse(gram) @ dense)
        inverse *= -1 / ridge
        inverse[np.diag_indices(part.items)] += 1 / ridge
    weights = inverse / -inverse.diagonal()
    np.fill_diagonal(weights, 0)
    return weights


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a positive definite matrix, as float32."""
    factor, _ = lapack.dpotrf(matrix, lower=True, clean=True)
    half, failed = lapack.dpotri(factor, lower=True)
    if failed:
        raise ValueError("the matrix is not positive definite")
    half = half.astype(np.float32)
    return half + np.tril(half, -1).T


def markov(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Rank by transition counts: how often an item came one to three places after the newest items.

    A transition between items that are s places apart counts ``skip ** (s - 1)``. An item's counts
    are divided by ``total ** norm``, where ``total`` is the sum of these counts.
    """
    return ranks_of(part, _by_transitions(part, settings))


def _by_transitions(part: Part, settings: Mapping[str, Any]) -> Scores:
    chain = _chain(part, settings["skip"], settings["norm"])
    recent = histories(part, settings["last"], settings["decay"])
    return lambda begin, end: (recent[begin:end] @ chain).toarray()


@lru_cache(maxsize=1)
def _chain(part: Part, skip: float, norm: float) -> sparse.csr_matrix:
    """Return the transitions of a Markov chain, ``[items, items]``."""
    events = part.events
    counts = sparse.csr_matrix((part.items, part.items), dtype=np.float32)
    for step in (1, 2, 3):
        of_user = events.user[step:] == events.user[:-step]
        pairs = events.item[:-step][of_user], events.item[step:][of_user]
        weights = np.full(len(pairs[0]), skip ** (step - 1), np.float32)
        counts += sparse.csr_matrix((weights, pairs), counts.shape)
    sums = np.maximum(np.asarray(counts.sum(1)).ravel(), 1e-9)
    return sparse.csr_matrix(sparse.diags_array((sums**-norm).astype(np.float32)) @ counts)


def als(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Rank by ALS from the package `implicit`; users' vectors are computed from the histories."""
    from threadpoolctl import threadpool_limits

    matrix = histories(part, settings.get("last"), settings.get("decay", 1.0))
    with threadpool_limits(1, "blas"):  # implicit has threads of its own
        model = _factors(part, settings["regularization"], settings["alpha"], seed)
        users = model.recalculate_user(np.arange(matrix.shape[0], dtype=np.int32), matrix)
    return _by_vectors(part, users, model.item_factors)


@lru_cache(maxsize=1)
def _factors(part: Part, regularization: float, alpha: float, seed: int) -> Any:
    """Return a trained model of ALS."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors=64,
        regularization=regularization,
        alpha=alpha,
        iterations=15,
        random_state=seed,
    )
    model.fit(seen(part), show_progress=False)
    return model


def bpr(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Rank by BPR of the package `implicit`, trained on the events before the part's time.

    A user without earlier events has a vector of zeros, so only the items' biases determine ranks.
    """
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors=64,
        learning_rate=settings["learning_rate"],
        regularization=settings["regularization"],
        iterations=100,
        random_state=seed,
        num_threads=1,  # more threads would give other numbers in each run
    )
    matrix = seen(part)
    model.fit(matrix, show_progress=False)
    users = model.user_factors.copy()
    users[np.diff(matrix.indptr) == 0, :-1] = 0  # the last number is 1, for the bias
    users[:, -1] = 1
    return _by_vectors(part, users[part.rows.user], model.item_factors)


def _by_history(part: Part, weights: np.ndarray, settings: Mapping[str, Any]) -> Scores:
    """Return a function that multiplies the rows' weighted histories by `weights`."""
    matrix = histories(part, settings.get("last"), settings.get("decay", 1.0))
    return lambda begin, end: matrix[begin:end] @ weights


def _by_vectors(part: Part, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Rank by the product of the user's and the item's vectors."""
    rows = part.rows
    masked = rows.history, rows.history_offsets
    return rank_targets(users, items, (rows.target, rows.target_offsets), masked)


BASELINES: dict[str, Callable[[Part, Mapping[str, Any], int], np.ndarray]] = {
    "popularity": popularity,
    "item-kNN": item_knn,
    "item-kNN, recent": item_knn,
    "EASE": ease,
    "EASE, recent": ease,
    "ALS": als,
    "ALS, recent": als,
    "BPR": bpr,
    "Markov chain": markov,
}
"""Functions that return the mid ranks of the rows' targets, by the baselines' names."""

CO_OCCURRENCE: dict[str, Callable[[Part, Mapping[str, Any]], Scores]] = {
    "item-kNN": _by_cosines,
    "item-kNN, recent": _by_cosines,
    "EASE": _by_ease,
    "EASE, recent": _by_ease,
    "Markov chain": _by_transitions,
}
"""Functions that return the scores of all items, of the baselines that count co-occurrences."""


def _grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return all combinations of the values."""
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


_RECENT: dict[str, Sequence[Any]] = {"last": [10, 50], "decay": [0.4, 0.7, 0.9, 1.0]}
GRIDS: dict[str, list[dict[str, Any]]] = {
    "popularity": _grid(days=[None, 90, 30, 7]),
    "item-kNN": _grid(shrink=[0, 10, 50]),
    "item-kNN, recent": _grid(shrink=[0, 10, 50], **_RECENT),
    "EASE": _grid(ridge=[5.0, 20.0, 100.0, 500.0]),
    "EASE, recent": _grid(ridge=[20.0, 100.0, 500.0], **_RECENT),
    "ALS": _grid(regularization=[1.0, 10.0], alpha=[1.0, 10.0]),
    "ALS, recent": _grid(regularization=[1.0, 10.0], alpha=[1.0, 10.0], **_RECENT),
    "BPR": _grid(learning_rate=[0.01, 0.05], regularization=[0.01]),
    "Markov chain": _grid(skip=[0.7, 1.0], norm=[0.5, 1.0], **_RECENT),
}
"""Settings that are tried on the validation rows, by the baselines' names."""


def installed() -> list[str]:
    """Return the names of the baselines whose packages are installed."""
    has_implicit = importlib.util.find_spec("implicit") is not None
    return [name for name in BASELINES if has_implicit or not name.startswith(("ALS", "BPR"))]
