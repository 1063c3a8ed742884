# SPDX-License-Identifier: Apache-2.0
"""Mistakes with a FeaturePipeline and its batches are refused, and say which column."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import FeatureSpec
from mindspore_rec.stream import Category, FeaturePipeline, Key, MinMaxScale

SPECS = [FeatureSpec("user"), FeatureSpec("time", is_timestamp=True)]


def test_two_columns_of_one_name() -> None:
    users, others = pa.array([1, 2]), pa.array([7, 8])
    rows = pa.RecordBatch.from_arrays([users, others], names=["user", "user"])
    for given in (rows, pa.Table.from_batches([rows])):
        with pytest.raises(ValueError, match="different names, got 'user' twice"):
            FeaturePipeline([FeatureSpec("user")])(given)


@pytest.mark.parametrize(
    "times",
    [np.array([-5, 6]), np.array([-0.5, 6.0]), np.array(["1960-01-01", "2024-01-01"], "M8[s]")],
)
def test_time_before_1970_beside_others(times: np.ndarray) -> None:
    with pytest.raises(ValueError, match="'time' must have no time before 1970"):
        FeaturePipeline(SPECS).batch({"user": [1, 2], "time": times})


@pytest.mark.parametrize(
    ("column", "error", "words"),
    [
        ([1, "2", 3], TypeError, "column 'user' must have values of one type"),
        ([[1], [2, 3], [4]], ValueError, "column 'user' must have one shape a row"),
        (1, ValueError, "column 'user' must have a row a sample, got a single value"),
    ],
)
@pytest.mark.parametrize("made", [Category("user"), Key("user")])
def test_column_of_no_type(column: Any, error: type[Exception], words: str, made: Any) -> None:
    with pytest.raises(error, match=words):
        FeaturePipeline({"ids": made})({"user": column})


@pytest.mark.parametrize("prepare", [None, 5, "dropna", [None]])
def test_prepare_of_no_functions(prepare: Any) -> None:
    with pytest.raises(TypeError, match="prepare must be functions of a DataFrame, got"):
        FeaturePipeline(SPECS, prepare=prepare)


def test_names_of_arrays_in_one_text() -> None:
    pipeline = FeaturePipeline([FeatureSpec("u")])
    with pytest.raises(TypeError, match="columns must be a list of names, got 'u'"):
        pipeline.apply({"u": [1]}, cast(Any, "u"))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_learn_by_themselves(threads: int, copied: Any) -> None:
    pipeline = FeaturePipeline({"n": [MinMaxScale("x"), MinMaxScale("y")]}, threads=threads)
    pipeline({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    state = pipeline.state_dict()
    other = copied(pipeline)
    assert other.state_dict() == state
    rows = {"x": [4.0], "y": [1.0]}
    assert other(rows)["n"].tolist() == [[1.0, 1.0]]
    assert pipeline.state_dict() == state != other.state_dict()
