# SPDX-License-Identifier: Apache-2.0
"""Keys and labels do not depend on how a column stores its values, or a missing one."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import Schema, category_keys
from mindspore_rec.common.columns.histories import HistoryValues
from mindspore_rec.feature import Categories, Category, CategoryColumn, Label

STORED = [
    pa.array([7, 8]),
    pa.array([7, 8]).dictionary_encode(),
    pa.array([7.0, 8.0]),
    pa.array(np.array([7, 8], np.float32)).dictionary_encode(),
]


@pytest.mark.parametrize("values", STORED)
def test_whole_numbers_are_their_own_keys_however_they_are_stored(values: pa.Array) -> None:
    assert Category("id", values="key").apply(values, learn=False).tolist() == [7, 8]
    assert HistoryValues("id", "key").apply(values, learn=False).tolist() == [7, 8]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_number_has_no_own_key(missing: float | None) -> None:
    values = pa.array([7.0, missing])
    with pytest.raises(ValueError, match="must be integers without missing values"):
        Category("id", values="key").apply(values, learn=False)
    with pytest.raises(ValueError, match="row 1 is"):
        Schema([CategoryColumn("id", values="key")]).check(pa.table({"id": values}))
    with pytest.raises(TypeError, match=r"got double with 1\.5"):
        Category("id", values="key").apply(pa.array([1.5]), learn=False)


def test_nan_is_a_missing_text_and_a_missing_label() -> None:
    keys = Category("id", values="text").apply(pa.array([7.0, math.nan]), learn=False)
    assert keys.tolist() == category_keys("id", ["7", None]).tolist()
    for positive in (1, "1"):
        with pytest.raises(ValueError, match="row 1 is nan: leave the row out"):
            Label("y", positive).apply(pa.array([1.0, math.nan]), learn=False)


def test_lists_have_no_own_keys() -> None:
    with pytest.raises(ValueError, match="values must be one of 'text', 'whole', got 'key'"):
        Categories("tags", values="key")


def test_schemas_with_other_keys_do_not_read_alike() -> None:
    text, key, open_ = (Schema([CategoryColumn("id", values=v)]) for v in ("text", "key", None))
    assert not text.reads_like(key)
    assert text.reads_like(open_) and open_.reads_like(key)
