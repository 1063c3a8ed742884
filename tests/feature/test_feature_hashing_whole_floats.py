# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that a missing one beside them has made floats, as pandas reads them."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mindspore_rec.common.columns.hashing import category_keys, missing_key
from mindspore_rec.stream import Category, FeaturePipeline


def test_a_column_of_integers_with_a_missing_one_has_the_keys_of_the_integers():
    column = pd.read_csv(io.StringIO("zip,x\n69001,1\n,2\n-7,3\n"))["zip"]
    assert column.dtype == np.float64
    known = category_keys("zip", [69001, -7])
    assert category_keys("zip", column).tolist() == [known[0], missing_key("zip"), known[1]]
    assert (category_keys("zip", [69001.0, -7.0]) == known).all()


def test_a_column_with_nothing_in_it_is_missing():
    column = pd.read_csv(io.StringIO("zip,x\n,1\n,2\n"))["zip"]
    assert category_keys("zip", column).tolist() == [missing_key("zip")] * 2


@pytest.mark.parametrize("value", [2.5, np.inf, -np.inf, 2.0**53 + 2, 1e300])
def test_other_floats_are_refused_and_shown(value):
    with pytest.raises(TypeError, match=r"field 'zip' .*got double with .*QuantileScale"):
        category_keys("zip", np.array([1.0, np.nan, value]))
    with pytest.raises(TypeError, match="with 16777218"):
        category_keys("zip", np.array([2.0**24 + 2], np.float32))


def test_floats_of_arrow_too_since_a_frame_becomes_arrow_in_a_pipeline():
    known = category_keys("zip", [1, None])
    assert (category_keys("zip", pa.array([1.0, None])) == known).all()
    frame = pd.DataFrame({"zip": [1.0, np.nan]})
    assert (FeaturePipeline({"ids": Category("zip")}).apply(frame)["ids"][:, 0] == known).all()
    with pytest.raises(TypeError, match="column 'zip' must .*got double with 2.5"):
        FeaturePipeline({"ids": Category("zip")}).apply(pd.DataFrame({"zip": [1.0, 2.5]}))
