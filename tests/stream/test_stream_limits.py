# SPDX-License-Identifier: Apache-2.0
"""StreamLimits, DeadLetterPolicy, StopWhen: bad values, and the arguments that were replaced."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mindspore_rec.common.stream.interleave import Sequence
from mindspore_rec.stream import (
    ArrowFormat,
    DataReceiver,
    DataSender,
    DeadLetterPolicy,
    DeadLetters,
    FeatureWorker,
    KafkaSource,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamLimits,
    StreamSource,
    pack,
)
from tests.support.documented import check_defaults
from tests.support.processes import ROOT

SCHEMA = pa.schema({"x": pa.int64(), "t": pa.float64()})
MOST = (1 << 62) - 1

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"turn_messages": 0}, ValueError, "turn_messages must be in [1, "),
    ({"turn_messages": 1.5}, TypeError, "turn_messages must be an int"),
    ({"buffer_bytes": 0}, ValueError, "buffer_bytes must be in [1, "),
    ({"max_message_bytes": 0}, ValueError, "max_message_bytes must be in [1, 2147483648], got 0"),
    ({"max_future_seconds": -1}, ValueError, "max_future_seconds must be at least 0, got -1"),
    ({"max_future_seconds": "1"}, TypeError, "max_future_seconds must be a number"),
    ({"value_ranges": {"x": (1, 0)}}, ValueError, "value_ranges['x'] must be ascending"),
    ({"value_ranges": {"x": (0, math.nan)}}, ValueError, "value_ranges['x'] must be ascending"),
    ({"value_ranges": [("x", 0, 1)]}, TypeError, "value_ranges must be a dict"),
    ({"value_ranges": {"x": 1}}, TypeError, "value_ranges['x'] must be (least, greatest)"),
    ({"value_ranges": {"x": (0, 1, 2)}}, TypeError, "value_ranges['x'] must be (least, greatest)"),
    ({"value_ranges": {"x": ("a", "b")}}, TypeError, "value_ranges['x'] must be (least, "),
    ({"skip_idle_seconds": 0.0}, ValueError, "skip_idle_seconds must be above 0, got 0.0"),
    ({"max_wait_seconds": -1.0}, ValueError, "max_wait_seconds must be above 0, got -1.0"),
    ({"on_missing": "raise"}, ValueError, "on_missing must be one of 'warn', 'stop', got 'raise'"),
]

OLD: Mapping[str, Any] = {
    "buffer_bytes": 1 << 20,
    "max_future_seconds": 60.0,
    "max_message_bytes": 5000,
    "max_wait_seconds": 2.0,
    "on_missing": "stop",
    "skip_idle_seconds": 1.0,
    "turn_messages": 3,
    "value_ranges": {"x": (0.0, 9.0)},
}
OLD_POLICY: Mapping[str, Any] = {
    "dead_share_messages": 500,
    "max_dead_share": 0.25,
    "on_dead_share": "warn",
}


def source(**options: Any) -> StreamSource:
    return StreamSource(MemoryTopic().client(), ArrowFormat(SCHEMA), 1, event_time="t", **options)


@pytest.mark.parametrize(("values", "kind", "said"), REFUSED)
def test_bad_values_are_refused_in_both_forms(
    values: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        StreamLimits(**values)
    with pytest.warns(DeprecationWarning), pytest.raises(kind, match=re.escape(said)):
        source(**values)


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        ({"batches": 1.5}, TypeError, "batches must be an int, got 1.5"),
        ({"batches": True}, TypeError, "batches must be an int, got True"),
        ({"batches": 0}, ValueError, "batches must be in [1, 4611686018427387903], got 0"),
        ({"seconds": "3"}, TypeError, "seconds must be a number, got '3'"),
        ({"seconds": 0}, ValueError, "seconds must be a finite number > 0, got 0"),
        ({"idle_seconds": True}, TypeError, "idle_seconds must be a number, got True"),
        (
            {"idle_seconds": math.inf},
            ValueError,
            "idle_seconds must be a finite number > 0, got inf",
        ),
        ({"watermark": "2026-01-01"}, TypeError, "watermark must be a number, got '2026-01-01'"),
        ({"watermark": math.nan}, ValueError, "watermark must be finite, got nan"),
    ],
)
def test_bad_conditions_of_the_end_are_refused(
    values: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        StopWhen(**values)


@pytest.mark.parametrize(
    ("make", "high", "argument"),
    [
        (lambda value: StreamLimits(turn_messages=value), MOST, "turn_messages"),
        (lambda value: StreamLimits(buffer_bytes=value), MOST, "buffer_bytes"),
        (lambda value: StreamLimits(max_message_bytes=value), 1 << 31, "max_message_bytes"),
        (lambda value: StopWhen(batches=value), MOST, "batches"),
        (lambda value: ArrowFormat(max_decoded_bytes=value), 1 << 40, "max_decoded_bytes"),
        (lambda value: DataReceiver(MemoryTopic(), batch_size=value), MOST, "batch_size"),
        (lambda value: DataSender(MemoryTopic(), message_rows=value), 1 << 24, "message_rows"),
        (lambda value: DeadLetterPolicy(dead_share_messages=value), 1 << 30, "dead_share_messages"),
    ],
)
def test_bounds_of_a_number(make: Callable[[int], Any], high: int, argument: str) -> None:
    low = 10 if argument == "dead_share_messages" else 1
    for value in (low, high):
        make(value)
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=rf"{argument} must be in \[{low}, {high}\], got"):
            make(value)


@pytest.mark.parametrize(
    "make",
    [
        StreamLimits,
        DeadLetterPolicy,
        MemoryTopic,
        DataSender,
        DataReceiver,
        StreamSource,
        FeatureWorker,
    ],
)
def test_defaults_are_those_that_the_docstring_states(make: type, tmp_path: Path) -> None:
    topic = MemoryTopic()
    arguments: dict[type, tuple[Any, ...]] = {
        DataSender: (topic,),
        DataReceiver: (topic,),
        StreamSource: (topic.client(), ArrowFormat(), 1),
        FeatureWorker: (
            StreamingDataset(StreamSource(topic.client(), ArrowFormat(), 1)),
            DataSender(topic, sender_name="w"),
            tmp_path / "state",
        ),
    }
    check_defaults(make(*arguments.get(make, ())))


def test_settings_do_not_change() -> None:
    ranges = {"x": (0, 1)}
    limits = StreamLimits(value_ranges=ranges)
    ranges["x"] = (5, 6)
    assert limits.value_ranges == {"x": (0.0, 1.0)}
    with pytest.raises(FrozenInstanceError):
        limits.buffer_bytes = 1  # type: ignore[misc]


def test_each_old_argument_works_and_gives_one_warning() -> None:
    letters = DeadLetters(MemoryTopic().producer(), "dead")
    with pytest.warns(DeprecationWarning) as caught:
        old = source(dead_letters=letters, **OLD, **OLD_POLICY)
    said = [str(each.message) for each in caught]
    assert all(each.filename == __file__ for each in caught)
    for name in OLD:
        (one,) = [each for each in said if f"argument {name} " in each]
        assert f"limits=StreamLimits({name}=...)" in one
    for name in OLD_POLICY:
        (one,) = [each for each in said if f"argument {name} " in each]
        assert f"dead_letters=DeadLetterPolicy(topic, {name}=...)" in one
    assert len(said) == len(OLD) + len(OLD_POLICY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = DeadLetterPolicy(letters, **OLD_POLICY)
        new = source(limits=StreamLimits(**OLD), dead_letters=policy)
    assert old._limits == new._limits
    assert old.settings == new.settings
    assert vars(old._bad._share) == vars(new._bad._share)


def test_the_sequence_of_messages_as_an_argument_drops_duplicates_too() -> None:
    topic = MemoryTopic()
    for number in (0, 1, 0, 2):
        topic.append(pack(pa.table({"x": [number]})), key=b"%d" % number)

    def sequence_of(message: Any) -> Sequence:
        return Sequence("w", int(message.key))

    stop = StopWhen(batches=3)
    options: dict[str, Any] = {"sequence_of": sequence_of}
    with pytest.warns(DeprecationWarning, match="use the attribute sequence_of of the format"):
        old = StreamSource(topic.client(), ArrowFormat(), 1, stop=stop, **options)
    format = ArrowFormat()
    format.sequence_of = sequence_of
    new = StreamSource(topic.client(), format, 1, stop=stop)
    for each in (old, new):
        assert [batch["x"].to_pylist() for batch in each] == [[0], [1], [2]]


def test_both_forms_at_once_are_refused() -> None:
    for name, value in OLD.items():
        with pytest.raises(ValueError, match=rf"{name} must not .* beside limits: use limits=Str"):
            source(limits=StreamLimits(), **{name: value})
    for name, value in OLD_POLICY.items():
        with pytest.raises(ValueError, match=f"{name} must not be given beside dead_letters"):
            source(dead_letters=DeadLetterPolicy(), **{name: value})


def test_sources_with_options_take_both_forms() -> None:
    with pytest.warns(DeprecationWarning, match="StreamLimits") as caught:
        old = DataReceiver(MemoryTopic(), max_wait_seconds=2.0)
    assert [each.filename for each in caught] == [__file__]
    new = DataReceiver(MemoryTopic(), limits=StreamLimits(max_wait_seconds=2.0))
    assert old._limits == new._limits
    with pytest.raises(ValueError, match="dead_letters must be None for a MemoryTopic"):
        DataReceiver(MemoryTopic(), dead_letters=DeadLetterPolicy("dead"))
    with pytest.raises(ValueError, match="dead_letters must be another topic than 'x'"):
        KafkaSource("127.0.0.1:1", "x", dead_letters=DeadLetterPolicy("x"))


def test_wrong_kinds_of_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="limits must be a StreamLimits, got dict"):
        source(limits={"buffer_bytes": 1})
    with pytest.raises(TypeError, match="dead_letters must be a DeadLetters, got the name 'dead'"):
        source(dead_letters="dead")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        source(colour=1)


def test_the_page_has_each_old_argument() -> None:
    page = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    settings = [*fields(StreamLimits), *fields(DeadLetterPolicy)]
    for name in {each.name for each in settings} - {"topic"} | {"sequence_of"}:
        assert re.search(rf"^\| `.*\b{name}=", page, re.MULTILINE), name
