# SPDX-License-Identifier: Apache-2.0
"""Events and features of the online-learning example."""

from __future__ import annotations

import numpy as np

from datasets.movielens.data import load
from examples.online_learning.events import Clicks, Ratings
from mindspore_rec.stream import ArrowFormat, pack


def test_ratings_have_the_features_of_the_data_set(movielens):
    """An event's features through a message are those that the offline part is trained on."""
    events, offline = Ratings(movielens), load(movielens, "time", 0.2)
    first = len(offline.train)
    assert events.count is not None
    message = pack(events.batch(first, events.count, sent=1.0))
    rows = ArrowFormat(events.schema).decode([message]).rows
    made = events.pipeline().apply(rows)
    assert np.array_equal(made["ids"], offline.test.ids)
    assert np.array_equal(made["dense"], offline.test.dense)
    assert np.array_equal(made["label"], offline.test.label)
    seconds = events.seconds(first, events.count)
    assert seconds is not None and np.array_equal(seconds, offline.test.time)


def test_events_do_not_depend_on_their_message():
    events = Clicks()
    whole = events.batch(100, 160, sent=2.0)
    parts = [events.batch(100, 117, sent=2.0), events.batch(117, 160, sent=2.0)]
    assert whole.column("row").to_pylist() == list(range(100, 160))
    for name in events.schema.names:
        joined = [value for part in parts for value in part.column(name).to_pylist()]
        assert whole.column(name).to_pylist() == joined
