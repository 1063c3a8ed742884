# SPDX-License-Identifier: Apache-2.0
"""A pipeline refuses the state of another one, and keeps what it has learned."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mindspore_rec.stream import (
    Feature,
    FeaturePipeline,
    LogScale,
    MinMaxScale,
    MixedScale,
    QuantileScale,
    StandardScale,
)

ROWS = {"x": [1.0, 2.0, 5.0]}
MAKERS: dict[str, Callable[[str], Feature]] = {
    "minmax": MinMaxScale,
    "log": lambda column: LogScale(column, running=True),
    "standard": StandardScale,
    "quantile": QuantileScale,
    "mixed": MixedScale,
}


def _pipeline(kind: str) -> FeaturePipeline:
    pipeline = FeaturePipeline({"n": MAKERS[kind]("x")})
    pipeline(ROWS)
    return pipeline


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("other", MAKERS)
def test_state_of_another_transform(kind: str, other: str) -> None:
    if {kind, other} <= {"minmax", "log"} or kind == other:
        return  # extremes both
    pipeline = _pipeline(kind)
    before = pipeline.state_dict()
    with pytest.raises(ValueError, match="column 'x'"):
        pipeline.load_state_dict(_pipeline(other).state_dict())
    assert pipeline.state_dict() == before


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("minmax", None),
        ("minmax", [1.0]),
        ("minmax", [5.0, 1.0]),
        ("minmax", [math.nan, 1.0]),
        ("minmax", ["0", "1"]),
        ("standard", []),
        ("standard", None),
        ("standard", [2, math.nan, 1.0]),
        ("standard", [-2, 0.0, 1.0]),
        ("standard", [2.5, 0.0, 1.0]),
        ("standard", [2, 0.0, -1.0]),
        ("quantile", None),
    ],
)
def test_no_state_at_all(kind: str, state: object) -> None:
    pipeline = _pipeline(kind)
    before = pipeline.state_dict()
    with pytest.raises(ValueError, match="column 'x'"):
        pipeline.load_state_dict({"n": [state]})
    assert pipeline.state_dict() == before


@pytest.mark.parametrize("kind", MAKERS)
def test_state_of_its_own(kind: str) -> None:
    made = FeaturePipeline({"n": MAKERS[kind]("x")})
    fresh = made.state_dict()
    made.load_state_dict(_pipeline(kind).state_dict())
    assert made.state_dict() == _pipeline(kind).state_dict()
    made.load_state_dict(fresh)
    assert made.state_dict() == fresh
