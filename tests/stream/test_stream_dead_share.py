# SPDX-License-Identifier: Apache-2.0
"""A stream of mostly bad messages stops, or warns, and says what most are bad for."""

from __future__ import annotations

import json
import logging
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec.stream import (
    ArrowFormat,
    DeadLetterPolicy,
    DeadLetters,
    MemoryTopic,
    StopWhen,
    StreamSource,
    TooManyDeadLettersError,
    pack,
)
from tests.support.topics import topic_of_messages

SCHEMA = pa.schema({"x": pa.int64(), "y": pa.int64()})
GOOD = pack(pa.table({"x": [1], "y": [1]}, SCHEMA))
NO_Y = pack(pa.table({"x": [1]}))


def filled(bad: list[bool], value: bytes = NO_Y, partitions: int = 1) -> MemoryTopic:
    return topic_of_messages((value if each else GOOD for each in bad), partitions, "clicks")


IDLE = StopWhen(idle_seconds=3.0)


def stream(
    topic: MemoryTopic, most: int = 500, stop: StopWhen = IDLE, **settings: Any
) -> StreamSource:
    policy = DeadLetterPolicy(DeadLetters(MemoryTopic().producer(), "dead"), **settings)
    return StreamSource(topic.client(most), ArrowFormat(SCHEMA), 10, dead_letters=policy, stop=stop)


def rows(source: StreamSource) -> int:
    return sum(batch.num_rows for batch in source)


def test_a_column_that_vanishes_stops_the_stream_with_the_reason() -> None:
    source = stream(filled([False] * 3000 + [True] * 3000))
    with pytest.raises(
        TooManyDeadLettersError,
        match="of the last 1000 messages of topic 'clicks' are bad, most for 'schema: column 'y' "
        "is missing or there twice'; they are in the dead-letter topic. Mend .*on_dead_share",
    ):
        rows(source)
    taken = source.state_dict()["rows"]
    assert taken == 3000
    source.close()


@pytest.mark.parametrize(
    ("bad", "good"), [(999, 0), (500, 5000), (100, 100)], ids=["few", "half", "short"]
)
def test_it_does_not_stop_for_less(bad: int, good: int) -> None:
    order = [True] * bad + [False] * good
    assert rows(stream(filled(order))) == good


def test_the_share_and_the_window_are_options() -> None:
    half = [i % 2 == 0 for i in range(4000)]
    assert rows(stream(filled(half))) == 2000
    with pytest.raises(TooManyDeadLettersError, match="500 of the last 1000"):
        rows(stream(filled(half), max_dead_share=0.4))
    with pytest.raises(TooManyDeadLettersError, match="20 of the last 20"):
        rows(stream(filled([True] * 20), dead_share_messages=20))
    assert rows(stream(filled([True] * 5000), max_dead_share=1)) == 0
    for name, value in (
        ("max_dead_share", 0), ("max_dead_share", 1.1), ("max_dead_share", float("nan")),
        ("on_dead_share", "halt"), ("dead_share_messages", 9),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            stream(filled([]), **cast(Any, {name: value}))


def test_a_warning_comes_once_and_again_after_better_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order = [True] * 3000 + [False] * 2000 + [True] * 2000
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        assert rows(stream(filled(order), on_dead_share="warn")) == 2000
    said = [record.getMessage() for record in caplog.records if "are bad" in record.getMessage()]
    assert len(said) == 2 and "most for 'schema: column 'y' is missing" in said[0]


def test_the_commonest_reason_is_told_where_every_detail_differs() -> None:
    rng = np.random.default_rng(0)
    topic = MemoryTopic()
    for i in range(1000):
        topic.append(NO_Y if i % 5 == 0 else b"%d" % i + rng.bytes(40))
    with pytest.raises(TooManyDeadLettersError, match="most for 'format: "):
        rows(stream(topic))


@pytest.mark.parametrize("partitions", [1, 3])
def test_restarts_count_on_and_stop_at_the_same_message(partitions: int) -> None:
    rng = np.random.default_rng(1)
    order = (rng.random(6000) < np.linspace(0, 1, 6000)).tolist()
    topic = filled(order, partitions=partitions)
    whole = stream(topic)
    with pytest.raises(TooManyDeadLettersError) as expected:
        rows(whole)
    last = whole.batches
    state: Any = None
    for batches in (7, 60, 120, None):
        life = stream(topic, 1 + (batches or 4), stop=StopWhen(batches=batches))
        if state is not None:
            life.load_state_dict(json.loads(json.dumps(state)))
        if batches is None:
            with pytest.raises(TooManyDeadLettersError) as found:
                rows(life)
            assert str(found.value) == str(expected.value) and life.batches == last
            with pytest.raises(TooManyDeadLettersError):  # and whoever tries again
                next(life)
            over = stream(topic, on_dead_share="warn")
            over.load_state_dict(life.state_dict())
            assert rows(over) > 0
            life.close()
        else:
            rows(life)
            state = life.state_dict()
    whole.close()


def test_a_state_from_before_and_another_window() -> None:
    topic = filled([True] * 600 + [False] * 10 + [True] * 600)
    old = stream(topic, stop=StopWhen(batches=1))
    rows(old)
    state = old.state_dict()
    for change in ({"dead_share": None}, {}):
        life = stream(topic, dead_share_messages=1000 if change else 500)
        life.load_state_dict({**state, **change})
        if change:
            assert rows(life) == 0
        else:
            with pytest.raises(TooManyDeadLettersError, match="500 of the last 500"):
                rows(life)


def test_counts_begin_anew_after_a_state_from_before() -> None:
    topic = filled([True] * 50 + [False] * 10 + [True] * 100)
    old = stream(topic, stop=StopWhen(batches=1))
    rows(old)
    life = stream(topic, dead_share_messages=100)
    life.load_state_dict({**old.state_dict(), "dead_share": None})
    with pytest.raises(TooManyDeadLettersError, match="100 of the last 100"):
        rows(life)
