# SPDX-License-Identifier: Apache-2.0
"""Checks that numbers are finite: columns of any size and type against numpy's own answer."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.columns.finite import check_finite, finite_fault

LARGE = {"float16": 6e4, "float32": 3e38, "float64": 1e308}


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.sampled_from(sorted(LARGE)),
    rows=st.sampled_from([0, 1, 3, 700, 5000]),
    width=st.sampled_from([1, 7]),
    strided=st.booleans(),
    bad=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    large=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_is_what_numpy_says(
    dtype: str, rows: int, width: int, strided: bool, bad: float | None, large: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    column = rng.standard_normal((rows, 2 * width)).astype(dtype)
    if large:
        column[:] = LARGE[dtype]  # sums overflow
    column = column[:, ::2] if strided else column
    place = None
    if bad is not None and column.size:
        place = tuple(int(rng.integers(n)) for n in column.shape)
        column[place] = bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fault = finite_fault(column)
    assert bool(fault) == (not np.isfinite(column).all())
    if place is not None:
        assert f"got {bad} in row {place[0]}" in fault


@pytest.mark.parametrize("column", [np.arange(3), np.array([True]), np.array(["nan"])])
def test_other_types_pass(column: np.ndarray) -> None:
    check_finite("column 'x'", column)


def test_a_number_alone_is_row_0() -> None:
    with pytest.raises(ValueError, match="input 'age' must have finite numbers, got nan in row 0"):
        check_finite("input 'age'", np.array(np.nan, np.float32))
