# SPDX-License-Identifier: Apache-2.0
"""Integers that no float64 has exactly end neither a stream nor its features."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec.stream import (
    ArrowFormat,
    DeadLetters,
    FeaturePipeline,
    LogScale,
    MemoryTopic,
    MinMaxScale,
    Number,
    QuantileBucket,
    QuantileScale,
    StandardScale,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    StreamSource,
    pack,
)
from tests.support.topics import topic_of_messages

LARGE = [2**53 + 1, 2**63 - 1, -(2**63)]


def source_of(values, kind, **more):
    schema, dead = pa.schema({"t": kind}), MemoryTopic()
    rows = (pa.table([pa.array([value], kind)], schema=schema) for value in values)
    topic = topic_of_messages(map(pack, rows))
    letters = DeadLetters(dead.producer(), "dead")
    stop = StopWhen(idle_seconds=0.1)
    source = StreamSource(
        topic.client(), ArrowFormat(schema), 1, stop=stop, dead_letters=letters, **more
    )
    return source, dead


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_outside_a_range_they_are_bad(kind):
    large = [each for each in [*LARGE, 2**64 - 1] if _fits(each, kind)]
    source, dead = source_of(
        [5, *large, 7], kind, limits=StreamLimits(value_ranges={"t": (1, 2**32 - 1)})
    )
    assert [batch.column(0).to_pylist() for batch in source] == [[5], [7]]
    reasons = [dict(each.headers)["reason"] for each in dead.messages()]
    assert reasons == [b"value"] * len(large)


def test_inside_a_range_they_are_good():
    limits = StreamLimits(value_ranges={"t": (-(2.0**63), 2.0**63)})
    source, dead = source_of(LARGE, pa.int64(), limits=limits)
    assert len(list(source)) == 3 and not dead.messages()


@pytest.mark.parametrize(
    "feature", [Number, LogScale, MinMaxScale, StandardScale, QuantileScale, QuantileBucket]
)
def test_features_read_them(feature):
    source, _ = source_of([1, *LARGE, 2], pa.int64())
    stream = StreamingDataset(source, FeaturePipeline({"x": feature("t")}))
    columns = [np.asarray(batch[0]) for batch in stream]
    assert len(columns) == 5 and np.isfinite(np.concatenate(columns)).all()


def _fits(value, kind):
    try:
        pa.scalar(value, kind)
    except (OverflowError, pa.ArrowInvalid):
        return False
    return True
