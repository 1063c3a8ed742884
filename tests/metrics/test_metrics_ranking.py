# SPDX-License-Identifier: Apache-2.0
"""Metrics of rankings: all orders of tied items, hand formulas, scikit-learn, exact merging."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import nn
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

import mindspore_rec as mr
from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.metrics import MAP, MRR, NDCG, Coverage, HitRate, Recall, functional
from mindspore_rec.train.metrics.ranking import RankingMetric

FUNCTIONS: dict[type[RankingMetric], Callable[..., float]] = {
    Recall: functional.recall,
    HitRate: functional.hit_rate,
    NDCG: functional.ndcg,
    MRR: functional.mean_reciprocal_rank,
    MAP: functional.average_precision,
}
CLASSES = list(FUNCTIONS)
SCORES = st.lists(st.integers(0, 3), min_size=2, max_size=6)


def places_in(order: tuple[int, ...], targets: set[int]) -> list[int]:
    """The places of targets in an order of items, from 1."""
    return [place for place, item in enumerate(order, 1) if item in targets]


def legal_orders(scores: list[int]) -> list[tuple[int, ...]]:
    """All orders of the items with falling scores."""
    orders = itertools.permutations(range(len(scores)))
    return [o for o in orders if all(scores[a] >= scores[b] for a, b in itertools.pairwise(o))]


def plain(name: str, places: list[int], targets: int, k: int) -> float:
    """A metric of one row by its formula."""
    hits = [p for p in places if p <= k]
    if name == "recall":
        return len(hits) / targets
    if name == "hit_rate":
        return float(bool(hits))
    if name == "ndcg":
        best = sum(1 / np.log2(i + 1) for i in range(1, min(targets, k) + 1))
        return float(sum(1 / np.log2(p + 1) for p in hits) / best)
    if name == "mean_reciprocal_rank":
        return 1 / hits[0] if hits else 0.0
    return sum(i / p for i, p in enumerate(hits, 1)) / min(targets, k)


@given(scores=SCORES, data=st.data())
@settings(deadline=None)
def test_mid_ranks_are_the_mean_over_all_orders_of_ties(scores, data) -> None:
    target = data.draw(st.integers(0, len(scores) - 1))
    ranks = [places_in(order, {target})[0] for order in legal_orders(scores)]
    assert functional.mid_ranks([scores], [target])[0] == np.mean(ranks)
    one_hot = np.eye(len(scores), dtype=int)[[target]]
    assert functional.relevant_ranks([scores], one_hot)[0][0] == np.mean(ranks)


@given(scores=SCORES, data=st.data())
@settings(max_examples=50, deadline=None)
def test_places_of_several_targets_have_the_mean_of_all_orders(scores, data) -> None:
    items = range(len(scores))
    targets = data.draw(st.sets(st.sampled_from(items), min_size=1))
    relevance = [[int(item in targets) for item in items]]
    rank, offsets = functional.relevant_ranks([scores], relevance)
    places = np.sort(rank) + np.arange(len(rank))
    orders = [places_in(order, targets) for order in legal_orders(scores)]
    assert np.isclose(places.sum(), np.mean([sum(each) for each in orders]))
    if len({tuple(each) for each in orders}) == 1:  # no target is tied with another item
        k = data.draw(st.integers(1, len(scores)))
        for function in FUNCTIONS.values():
            expected = plain(function.__name__, orders[0], len(targets), k)
            assert function(rank, k=k, offsets=offsets) == pytest.approx(expected, rel=1e-12)


@given(seed=st.integers(0, 1000), k=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_scikit_learns_values(seed, k) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(8.0), (5, 1)), axis=1)
    relevance = rng.random((5, 8)) < 0.4
    relevance[:, 0] |= ~relevance.any(1)
    rank, offsets = functional.relevant_ranks(scores, relevance)
    expected = ndcg_score(relevance, scores, k=k)
    assert functional.ndcg(rank, k, offsets) == pytest.approx(expected, rel=1e-9)
    expected = label_ranking_average_precision_score(relevance, scores)
    assert functional.average_precision(rank, 8, offsets) == pytest.approx(expected, rel=1e-9)


def test_equal_scores_do_not_favour_a_target() -> None:
    scores = np.zeros((4, 101))
    metric = Recall(k=10)
    metric.update(scores, np.array([0, 50, 99, 100]))
    assert metric.eval() == 0.0
    assert functional.mid_ranks(scores, [0, 50, 99, 100]).tolist() == [51.0] * 4


def test_all_targets_first_is_perfect_also_if_they_are_tied() -> None:
    scores, targets = np.array([[2.0, 1.0, 2.0, 2.0]]), np.array([[1, 0, 1, 1]])
    for kind in CLASSES:
        metric = kind(k=2)
        metric.update(scores, targets)
        assert metric.eval() == pytest.approx(2 / 3 if kind is Recall else 1.0)


def ragged(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The halves of whole numbers, and where the rows begin."""
    ends = np.cumsum([0, *(len(row) for row in rows)])
    return np.array([rank / 2 for row in rows for rank in row]), ends


@pytest.mark.parametrize("kind", CLASSES)
@given(
    ranks=st.lists(st.lists(st.integers(2, 60), min_size=1, max_size=5), min_size=1, max_size=30),
    data=st.data(),
)
@settings(max_examples=20, deadline=None)
def test_any_order_batches_and_merging_give_the_same_bits(kind, ranks, data) -> None:
    def add(metric: RankingMetric, rows: list[list[int]]) -> RankingMetric:
        metric.add_ranks(*ragged(rows))
        return metric

    whole = add(kind(k=7), ranks)
    mixed = data.draw(st.permutations(ranks))
    cut = data.draw(st.integers(0, len(ranks)))
    one, other = kind(k=7), kind(k=7)
    for row in mixed[:cut]:
        add(one, [row])
    add(other, mixed[cut:])
    one.merge([other])
    assert one.rows == whole.rows == len(ranks)
    assert one.eval() == whole.eval()
    flat, offsets = ragged(ranks)
    assert FUNCTIONS[kind](flat, k=7, offsets=offsets) == whole.eval()
    assert 0 <= whole.eval() <= 1
    values = functional.ranking_values(FUNCTIONS[kind].__name__, flat, 7, offsets)
    assert values.mean() == pytest.approx(whole.eval(), abs=1e-12)


@pytest.mark.parametrize("kind", CLASSES)
def test_tensors_and_shapes_give_one_value(kind) -> None:
    rng = np.random.default_rng(0)
    scores, targets = rng.permuted(np.tile(np.arange(9.0), (6, 1)), axis=1), rng.integers(0, 9, 6)
    values = []
    for score, target in (
        (scores, targets),
        (ms.Tensor(scores, ms.float32), ms.Tensor(targets, ms.int32)),
        (ms.Tensor(scores, ms.bfloat16), ms.Tensor(targets[:, None], ms.int64)),
        (scores, np.eye(9)[targets]),
    ):
        metric = kind(k=4)
        metric.update(score, target)
        values.append(metric.eval())
    assert len(set(values)) == 1 and 0 < values[0] < 1


def test_a_large_sum_is_carried_through_a_state() -> None:
    metric, other = Recall(k=1), Recall(k=1)
    metric.add_ranks(np.ones(5000))  # 5000 * 2^52 exceeds an int64
    other.add_ranks(np.array([2.0]))
    message = pack_arrays(metric.state_dict())  # as workers send it
    other.merge_states([unpack_arrays(message)])
    assert (other.rows, other.eval()) == (5001, 5000 / 5001)
    other.clear()
    with pytest.raises(RuntimeError, match="has seen no rows"):
        other.eval()


def test_mrr_looks_at_all_items_unless_k_is_given() -> None:
    for k, expected in ((None, 0.501), (10, 0.5)):
        metric = MRR(k=k)
        metric.add_ranks([1, 500])
        assert metric.eval() == pytest.approx(expected)


def test_coverage_counts_items_once() -> None:
    one, other = Coverage(10), Coverage(10)
    one.update(np.array([[1, 2], [2, -1]]))
    other.update(ms.Tensor([[9, 1, 0]], ms.int32))
    other.update(np.zeros((0, 3), np.int64))
    one.merge_states([unpack_arrays(pack_arrays(other.state_dict()))])
    assert (one.rows, one.eval()) == (3, 0.4)
    with pytest.raises(ValueError, match="same settings"):
        one.merge([Coverage(11)])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Recall(k=0), ValueError, "k must be at least 1"),
        (lambda: Recall(k=2.0), TypeError, "k must be an int"),  # type: ignore[arg-type]
        (lambda: functional.recall([1, 2], 0), ValueError, r"k must be in \[1, 2147483647\]"),
        (lambda: functional.ndcg([1, 2], 2.5), TypeError, "k must be an int"),  # type: ignore[arg-type]
        (lambda: functional.ndcg([1, 2], 2**70), ValueError, r"k must be in \[1, 2147483647\]"),
        (lambda: functional.recall([], 3), ValueError, "at least one row"),
        (lambda: functional.recall([0.5], 3), ValueError, "rank must be at least 1"),
        (lambda: functional.recall([np.nan], 3), ValueError, "rank must be finite"),
        (lambda: functional.recall([[1]], 3), ValueError, "must have the shape"),
        (lambda: functional.recall([1, 2], 3, [0, 0, 2]), ValueError, "row 0 has none"),
        (lambda: functional.recall([1, 2], 3, [0, 1]), ValueError, "rise from 0"),
        (lambda: functional.recall([1, 2], 3, [0.0, 2.0]), TypeError, "must be integers"),
        (lambda: functional.mid_ranks([[1, np.nan]], [0]), ValueError, "must be finite"),
        (lambda: functional.mid_ranks([[1, 2]], [2]), ValueError, r"target must be in \[0, 2\)"),
        (lambda: functional.mid_ranks([[1, 2]], [1.0]), TypeError, "target must be integers"),
        (lambda: functional.mid_ranks([[1, 2]], [0, 1]), ValueError, "target must have the shape"),
        (lambda: functional.relevant_ranks([[1, 2]], [[1]]), ValueError, "relevance must have"),
        (lambda: functional.relevant_ranks([[1, 2]], [[1, 2]]), ValueError, "must be 0 or 1"),
        (lambda: functional.ranking_values("auc", [1], 3), ValueError, "metric must be one of"),
        (lambda: functional.ranking_values("ndcg", [1], 0), ValueError, "k must be in"),
        (lambda: functional.coverage([3], 3), ValueError, r"items must be in \[-1, 3\)"),
        (lambda: functional.coverage([0.5], 3), TypeError, "items must be integers"),
        (lambda: Coverage(0), ValueError, "catalogue must be at least 1"),
        (lambda: Coverage(3).update(np.array([1])), ValueError, r"shape \[B, K\]"),
        (lambda: NDCG().update(np.zeros((1, 2))), ValueError, r"takes \(score, target\)"),
        (lambda: NDCG(3).merge([NDCG(4)]), ValueError, "same settings"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], error, message) -> None:
    with pytest.raises(error, match=message):
        call()


def test_rec_models_evaluation() -> None:
    rng = np.random.default_rng(3)
    users, weight = rng.normal(size=(90, 4)).astype(np.float32), rng.normal(size=(7, 4))
    targets = rng.integers(0, 7, 90).astype(np.int32)
    network = nn.Dense(4, 7, weight_init=ms.Tensor(weight, ms.float32), has_bias=False)
    metrics = {"ndcg": NDCG(k=3), "mrr": MRR()}
    model = mr.RecModel(network, nn.CrossEntropyLoss(), metrics=metrics)
    batches = [(users[some : some + 32], targets[some : some + 32]) for some in (0, 32, 64)]
    values = model.eval(batches)
    ranks = functional.mid_ranks(network(ms.Tensor(users)).asnumpy(), targets)
    assert values == {
        "ndcg": functional.ndcg(ranks, 3),
        "mrr": functional.mean_reciprocal_rank(ranks),
    }
