# SPDX-License-Identifier: Apache-2.0
"""A proposed admission threshold saves what a simulation of all choices says, or is None."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mindspore_rec.plan import Choices, KeyLog, row_bytes, simulate
from mindspore_rec.plan.admission import propose_admission


def skewed(rows: int, seed: int) -> np.ndarray:
    """Return keys of which half occur once, and the others often."""
    rng = np.random.default_rng(seed)
    frequent = rng.integers(0, 50, rows)
    return np.where(rng.random(rows) < 0.1, 10**6 + np.arange(rows), frequent)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_proposal_is_the_outcome_of_a_simulation(tmp_path: Path, seed: int) -> None:
    keys, bytes_ = skewed(20_000, seed), row_bytes(16, "LazyAdam")
    batches = np.split(keys, np.arange(256, len(keys), 256))
    made = propose_admission(batches, bytes_, least_keys=1000)
    assert made is not None
    (tmp_path / "log.csv").write_text("k\n" + "\n".join(map(str, keys)))
    choices = Choices(admission=[1, made.admission])
    one, chosen = simulate(KeyLog([tmp_path / "log.csv"], ["k"]), choices, bytes_, 256).outcomes
    assert made.saved_share == 1 - chosen.peak_bytes / one.peak_bytes >= 0.3
    assert made.lost_share == 1 - chosen.hit_rate / one.hit_rate <= 0.01
    assert f"admission {made.admission} saves {made.saved_share:.0%} of" in made.sentence


def test_no_proposal_without_gain() -> None:
    even = [np.arange(2000)] * 3
    assert propose_admission(even, 220, least_keys=1000) is None
    assert propose_admission([skewed(5000, 0)], 220, least_keys=10**6) is None
    assert propose_admission([np.arange(5000)], 220, least_keys=1000) is None
