# SPDX-License-Identifier: Apache-2.0
"""Ranks among all items and the best items: beside NumPy, with any tile, threads and set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mindspore_rec as mr
from mindspore_rec.metrics import rank_targets, top_items


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    before = mr.get_num_threads()
    mr.set_num_threads(3)
    yield
    mr.set_num_threads(before)


def scores_of(user: np.ndarray, item: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Scores summed in float32, number by number."""
    scores = np.zeros((len(user), len(item)), np.float32)
    for d in range(user.shape[1]):
        scores += user[:, d, None] * item[None, :, d]
    return scores if bias is None else scores + bias


def lists(rng: np.random.Generator, rows: int, items: int, most: int, least: int = 0) -> tuple:
    """Ragged items, with repetitions."""
    number = rng.integers(least, most + 1, rows)
    return rng.integers(0, items, number.sum()), np.concatenate([[0], np.cumsum(number)])


def plain_ranks(scores: np.ndarray, targets: tuple, masked: tuple) -> list[float]:
    values, offsets = targets
    ranks = []
    for row, mine in enumerate(scores):
        of_row = values[offsets[row] : offsets[row + 1]]
        counted = np.ones(len(mine), bool)
        counted[masked[0][masked[1][row] : masked[1][row + 1]]] = False
        counted[of_row] = False
        for target in of_row:
            others = mine[counted]
            ranks.append(1 + (others > mine[target]).sum() + (others == mine[target]).sum() / 2)
    return ranks


@given(
    rows=st.sampled_from([0, 1, 2, 9, 70, 200]),
    items=st.sampled_from([1, 2, 15, 16, 17, 255, 256, 257, 700]),
    dim=st.sampled_from([0, 1, 3, 8, 33]),
    levels=st.sampled_from([2, 5, 1000]),
    with_bias=st.booleans(),
    seed=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_numpys_ranks_and_best_items(rows, items, dim, levels, with_bias, seed) -> None:
    rng = np.random.default_rng(seed)
    # Few distinct numbers, so that many scores are tied.
    user = rng.integers(-levels, levels, (rows, dim)).astype(np.float32) / np.float32(3)
    item = rng.integers(-levels, levels, (items, dim)).astype(np.float32) / np.float32(7)
    bias = rng.integers(0, 2, items).astype(np.float32) if with_bias else None
    scores = scores_of(user, item, bias)
    targets, masked = lists(rng, rows, items, 3), lists(rng, rows, items, 40)
    assert rank_targets(user, item, targets, masked, bias).tolist() == (
        plain_ranks(scores, targets, masked)
    )
    one = rng.integers(0, items, rows)
    none = np.zeros(0, np.int64), np.zeros(rows + 1, np.int64)
    assert rank_targets(user, item, one, bias=bias).tolist() == (
        plain_ranks(scores, (one, np.arange(rows + 1)), none)
    )
    k = int(rng.integers(1, 12))
    found, best = top_items(user, item, k, masked, bias)
    for row in range(rows):
        left = np.setdiff1d(np.arange(items), masked[0][masked[1][row] : masked[1][row + 1]])
        order = left[np.lexsort((left, -scores[row][left]))][:k]
        missing = k - len(order)
        assert found[row].tolist() == [*order, *[-1] * missing]
        assert best[row].tolist() == [*scores[row][order], *[-np.inf] * missing]


def test_threads_and_other_users_change_no_bit() -> None:
    rng = np.random.default_rng(5)
    user, item = (rng.standard_normal((n, 37)).astype(np.float32) for n in (150, 900))
    target, made = np.arange(150), []
    for number in (1, 4):  # tests/csrc/ranking compares instruction sets
        mr.set_num_threads(number)
        ranks, (items, scores) = rank_targets(user, item, target), top_items(user, item, 9)
        few = slice(140, 143)
        assert rank_targets(user[few], item, target[few]).tolist() == ranks[few].tolist()
        assert top_items(user[few], item, 9)[1].tobytes() == scores[few].tobytes()
        made.append([each.tobytes() for each in (ranks, items, scores)])
    assert made[0] == made[1]


def test_a_score_that_overflows_favours_no_target() -> None:
    user = np.array([[3e38, 3e38]], np.float32)
    item = np.array([[3, -3], [0, 0], [1e-38, 0]], np.float32)  # scores: NaN, 0, 3
    assert rank_targets(np.repeat(user, 3, 0), item, [0, 1, 2]).tolist() == [3, 3, 2]
    assert top_items(user, item, 3)[0].tolist() == [[2, 1, -1]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"user": [1.0]}, ValueError, "user must have the shape"),
        ({"user": [[1.0, np.nan]]}, ValueError, "user must be finite"),
        ({"item": [[np.inf, 1.0]]}, ValueError, "item must be finite"),
        ({"user": [[1.0]]}, ValueError, r"arrays \[B, dim\] and \[I, dim\]"),
        ({"bias": [1.0]}, ValueError, r"bias must be an array \[2\]"),
        ({"target": [2]}, ValueError, r"target must be items in \[0, 2\)"),
        ({"target": [-1]}, ValueError, r"target must be items in \[0, 2\)"),
        ({"target": [0.0]}, TypeError, "target must be integers"),
        ({"target": [0, 1]}, ValueError, "target_offsets must rise from 0 to 2"),
        ({"masked": ([5], [0, 1])}, ValueError, r"masked must be items in \[0, 2\)"),
        ({"masked": ([1], [0, 0])}, ValueError, "masked offsets must rise"),
        ({"masked": ([1], [0, 1, 1])}, ValueError, "masked_offsets must rise"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message) -> None:
    given = {"user": [[1.0, 2.0]], "item": [[1.0, 0.0], [0.0, 1.0]], "target": [0], **arguments}
    with pytest.raises(error, match=message):
        rank_targets(**given)
    if "target" not in arguments:
        del given["target"]
        with pytest.raises(error, match=message):
            top_items(**given, k=1)
    with pytest.raises(ValueError, match="k must be in"):
        top_items([[1.0]], [[1.0]], 0)
