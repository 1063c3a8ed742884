# SPDX-License-Identifier: Apache-2.0
"""The drifting stream: rows by position, values that live as long as promised, a true label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from datasets.synthetic.drifting import DriftingConfig, DriftingModel, drifting

SMALL = DriftingConfig(fields=3, alive=40, life=500, once_share=0.1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 300), st.integers(1, 400), st.integers(-5, 5))
def test_rows_do_not_depend_on_blocks_or_range(start, rows, block_rows, seed) -> None:
    (whole,) = drifting(rows + 10, seed, start, 1 << 20, SMALL)
    parts = list(drifting(rows, seed, start + 10, block_rows, SMALL))
    for name, array in whole.items():
        assert np.array_equal(np.concatenate([part[name] for part in parts]), array[10:]), name


def test_values_live_as_long_as_promised() -> None:
    model = DriftingModel(SMALL, seed=3)
    numbers = np.arange(5000)
    values = model.rows(0, 5000).values
    for field in range(SMALL.fields):
        column = values[:, field]
        born, dead = model.lifetime(field, column)
        assert np.all((born <= numbers) & (numbers < dead))
        lasting = column >= 0
        assert np.all((dead - born)[lasting] == SMALL.life)
        assert np.all((dead - born)[~lasting] == 1)
        # The stream turns over: ten lives bring about eleven times the alive.
        assert 9 * SMALL.alive < len(np.unique(column[lasting])) <= 11 * SMALL.alive
        # And at any time nearly all of the promised number are alive, and never more.
        at_once = np.unique(column[lasting & (born <= 2000) & (dead > 2000)])
        assert 0.8 * SMALL.alive < len(at_once) <= SMALL.alive


def test_places_are_taken_over_without_a_gap() -> None:
    model = DriftingModel(SMALL, seed=3)
    values = np.arange(SMALL.alive)
    _, dead = model.lifetime(1, values)
    born, _ = model.lifetime(1, values + SMALL.alive)
    assert np.array_equal(dead, born)
    # Births are spread over a life, not all at once.
    assert np.bincount(born // 100, minlength=6).max() < SMALL.alive / 2


def test_once_share_and_keys() -> None:
    model = DriftingModel(SMALL, seed=4)
    values = model.rows(0, 20_000).values
    assert abs(float(np.mean(values < 0)) - 0.1) < 0.005
    keys = model.keys(values)
    for field in range(SMALL.fields):
        pairs = np.unique(np.stack([values[:, field], keys[:, field]]), axis=1)
        assert pairs.shape[1] == len(np.unique(values[:, field])) == len(np.unique(pairs[1]))
    assert not np.intersect1d(keys[:, 0], keys[:, 1]).size


def test_labels_follow_the_probabilities_and_effects_have_unit_variance() -> None:
    rows = DriftingModel(SMALL, seed=5).rows(0, 100_000)
    assert abs(rows.clicks.mean() - rows.bayes.mean()) < 0.005
    for low in np.arange(0.0, 0.6, 0.1):
        inside = (rows.bayes >= low) & (rows.bayes < low + 0.1)
        assert abs(rows.clicks[inside].mean() - rows.bayes[inside].mean()) < 0.02
    effects = DriftingModel(SMALL, seed=5).effect(0, np.arange(10_000))
    assert abs(float(effects.mean())) < 0.05 and abs(float(effects.std()) - 1) < 0.05


@pytest.mark.parametrize(
    "wrong",
    [
        {"fields": 0},
        {"alive": 0},
        {"life": 0},
        {"zipf": -1.0},
        {"once_share": 1.0},
        {"logit_std": 0.0},
        {"base_rate": 1.0},
    ],
    ids=str,
)
def test_bad_configurations_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DriftingConfig(**wrong)


def test_bad_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="start"):
        next(drifting(1, 0, start=-1))
    with pytest.raises(ValueError, match="range"):
        DriftingModel(SMALL, 0).rows(5, 4)
