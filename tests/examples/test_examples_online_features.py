# SPDX-License-Identifier: Apache-2.0
"""One pipeline of the example in its worker, its trainer and its predictor."""

from __future__ import annotations

import numpy as np

from examples.online_learning.events import open_events
from examples.online_learning.features import channel_schema
from examples.online_learning.network import inputs_of
from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.following.features import InputMaker
from mindspore_rec.stream import to_record_batch


def test_what_the_worker_sends_is_what_the_trainer_and_the_predictor_read() -> None:
    events = open_events(None)
    pipeline = events.pipeline()
    raw = events.batch(0, 8, sent=1_700_000_000.5)
    sent = pipeline.with_times()(raw)
    assert to_record_batch(sent).schema == channel_schema(events.pipeline(), raw)
    assert sent["sent"].tolist() == [1_700_000_000.5] * 8
    received, event_time = pipeline.received().batch(to_record_batch(sent))
    assert event_time == 1_700_000_000 and list(received) == ["ids", "label"]
    inputs = [TensorSpec.parse(each) for each in inputs_of(events.fields, events.dense)]
    (ids,) = InputMaker(pipeline, inputs)(pipeline, raw)
    np.testing.assert_array_equal(ids, received["ids"])
    np.testing.assert_array_equal(ids, sent["ids"])
