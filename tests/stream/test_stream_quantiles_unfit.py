# SPDX-License-Identifier: Apache-2.0
"""A scale that has learned nothing, as one whose state was not loaded, is told of once."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec.stream import QuantileScale


@pytest.mark.parametrize("use", ["scaled", "keys"])
def test_it_is_said_once_where_it_is_used(use):
    scale = QuantileScale("price")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            getattr(scale, use)([1.0, 2.0])
    (hint,) = found
    assert hint.category is RuntimeWarning and hint.filename == __file__
    assert str(hint.message).startswith("column 'price': the scale has learned nothing")


def test_not_of_scales_that_have_learned():
    learned, loaded, streamed = (QuantileScale("price") for _ in range(3))
    learned.fit([np.nan])
    loaded.load_state_dict(learned.state_dict())
    streamed.apply(pa.array([1.0]), learn=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (learned, loaded, streamed):
            scale.scaled([1.0])
            scale.keys([1.0])
        QuantileScale("price").apply(pa.array([1.0]), learn=False)  # of a stream at its beginning
