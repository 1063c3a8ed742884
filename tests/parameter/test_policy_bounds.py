# SPDX-License-Identifier: Apache-2.0
"""Numbers of policies: the least and the greatest are taken, and what is beyond is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mindspore_rec import CountAdmission, Eviction, ProbabilityAdmission, SketchAdmission
from tests.support.documented import check_defaults

NEVER = 1 << 60


def limit(name: str) -> Callable[[int], Any]:
    def make(value: int) -> Eviction:
        others: dict[str, Any] = {"max_bytes" if name == "max_rows" else "max_rows": 9}
        return Eviction(**{**others, name: value})

    return make


@pytest.mark.parametrize(
    ("make", "low", "high", "argument"),
    [
        (CountAdmission, -1, (1 << 30) - 1, "threshold"),
        (lambda value: CountAdmission(2, max_candidates=value), 16, NEVER, "max_candidates"),
        (SketchAdmission, -1, 65535, "threshold"),
        (lambda value: SketchAdmission(2, sketch_bytes=value), 1024, 1 << 40, "sketch_bytes"),
        (lambda value: SketchAdmission(9, max_threshold=value), 9, 65535, "max_threshold"),
        (limit("max_idle_steps"), 1, NEVER, "max_idle_steps"),
        (limit("max_idle_seconds"), 1, NEVER, "max_idle_seconds"),
        (limit("max_rows"), 1, NEVER, "max_rows"),
    ],
)
def test_bounds_of_a_number(make: Callable[[int], Any], low: int, high: int, argument: str) -> None:
    for value in (low, high):
        make(value).native_arguments()  # which a table is made of
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=argument):
            make(value)


def test_defaults_are_those_that_the_docstring_states() -> None:
    check_defaults(SketchAdmission(2), "threshold")
    check_defaults(Eviction(max_rows=1), "max_rows", "max_idle_steps")  # -1 means None


def test_minus_one_is_off() -> None:
    assert Eviction(max_idle_steps=-1, max_rows=9) == Eviction(max_rows=9)
    assert CountAdmission(None) == CountAdmission(-1)
    with pytest.raises(ValueError, match="must have a rule"):
        Eviction(max_idle_steps=-1, max_idle_seconds=-1, max_rows=-1, max_bytes=-1, min_norm=-1)


@pytest.mark.parametrize(
    ("threshold", "bits"), [(15, 4), (16, 8), (255, 8), (256, 16), (65535, 16)]
)
def test_counters_are_as_wide_as_the_threshold_needs(threshold: int, bits: int) -> None:
    assert SketchAdmission(threshold).native_arguments()["sketch_bits"] == bits
    assert SketchAdmission(1, max_threshold=threshold).native_arguments()["sketch_bits"] == bits


def test_numbers_that_are_no_counts() -> None:
    assert ProbabilityAdmission(1).probability == 1
    for wrong in (0, 1.0000001, -0.5):
        with pytest.raises(ValueError, match="probability must be in"):
            ProbabilityAdmission(wrong)
    for wrong in (0, -0.5, -2):
        with pytest.raises(ValueError, match="min_norm must be"):
            Eviction(min_norm=wrong)
    with pytest.raises(ValueError, match="half_life_steps must be > 0"):
        Eviction(max_rows=1, order="lfu_decay", half_life_steps=0)


@pytest.mark.parametrize("name", ["order", "trigger"])
def test_a_word_that_is_none_is_refused(name: str) -> None:
    words: dict[str, Any] = {name: "mru"}
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        Eviction(max_rows=1, **words)
