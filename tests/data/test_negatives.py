# SPDX-License-Identifier: Apache-2.0
"""NegativeSampler: its distribution, its determinism, and items that it avoids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.data import NegativeSampler


@pytest.mark.parametrize("alpha", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("avoid", [None, 1, 3])
def test_the_distribution(alpha: float, avoid: int | None) -> None:
    counts = np.array([3.0, 50.0, 0.0, 7.0, 1.0])
    expected = counts**alpha
    expected /= expected.sum()
    sampler = NegativeSampler(counts, alpha, seed=9)
    np.testing.assert_allclose(np.exp(sampler.log_q([0, 1, 3, 4])), expected[[0, 1, 3, 4]], 1e-6)
    if avoid is not None:
        expected[avoid] = 0
        expected /= expected.sum()
    rows, each = 4, 50_000
    items = sampler.draw(2, (rows, each), None if avoid is None else np.full(rows, avoid))
    found = np.bincount(items.reshape(-1), minlength=5) / (rows * each)
    error = np.sqrt(expected * (1 - expected) / (rows * each))
    assert (np.abs(found - expected) <= 4.5 * error).all()


@given(
    counts=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    alpha=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**63 - 1),
    step=st.integers(0, 2**63 - 1),
)
@settings(deadline=None)
def test_nothing_is_drawn_that_must_not_be(counts, alpha, seed, step) -> None:
    can = [item for item, count in enumerate(counts) if count or not alpha]
    if len(can) < 2:
        with pytest.raises(ValueError, match="at least two items"):
            NegativeSampler(counts, alpha, seed)
        return
    avoid = np.arange(len(counts))
    items = NegativeSampler(counts, alpha, seed).draw(step, (len(counts), 3, 5), avoid)
    assert items.shape == (len(counts), 3, 5)
    assert set(items.reshape(-1)) <= set(can)
    assert (items != avoid[:, None, None]).all()


def test_seed_and_step_determine_a_draw() -> None:
    draws = [
        NegativeSampler(np.ones(1000), seed=seed).draw(step, (50,)).tolist()
        for seed, step in ((1, 5), (1, 5), (1, 6), (2, 5), (5, 1))
    ]
    assert draws[0] == draws[1]
    assert len({tuple(each) for each in draws}) == 4
    # The same on every machine and with every version of NumPy.
    assert NegativeSampler([1, 2, 3, 4], 1.0, seed=7).draw(0, (8,)).tolist() == FIRST
    assert NegativeSampler(np.ones(3)).draw(0, (0,)).tolist() == []


FIRST = [3, 1, 2, 2, 0, 3, 1, 3]


def test_a_rare_item_is_not_lost() -> None:
    sampler = NegativeSampler([1e18, 1.0], 1.0)
    assert sampler.log_q([1])[0] == pytest.approx(np.log(2.0**-40), rel=1e-6)
    assert sampler.draw(0, (2, 4), [0, 1]).tolist() == [[1] * 4, [0] * 4]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: NegativeSampler([1, -1]), ValueError, "count must be finite"),
        (lambda: NegativeSampler([1, np.nan]), ValueError, "count must be finite"),
        (lambda: NegativeSampler([[1, 1]]), ValueError, "count must be finite"),
        (lambda: NegativeSampler([1, 1], alpha=1.5), ValueError, "alpha must be in"),
        (lambda: NegativeSampler([1, 1], seed=-1), ValueError, "seed must be in"),
        (lambda: NegativeSampler([1, 1]).draw(-1, (2,)), ValueError, "step must be in"),
        (lambda: NegativeSampler([1, 1]).draw(0, (2, 3), [0]), ValueError, "avoid must have"),
        (lambda: NegativeSampler([1, 1]).draw(0, (1, 3), [2]), ValueError, "avoid must be in"),
        (lambda: NegativeSampler([1, 1]).draw(0, (1, 3), [0.0]), TypeError, "must be integers"),
        (lambda: NegativeSampler([1, 1]).log_q([2]), ValueError, "items must be in"),
    ],
)
def test_wrong_arguments_are_named(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()


def test_no_items_have_no_probabilities() -> None:
    assert NegativeSampler([1, 2, 3]).log_q([]).shape == (0,)
