# SPDX-License-Identifier: Apache-2.0
"""Hostile messages: what they decode to is bounded before, and broken text is bad at once."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.stream.arrow_bounds import (
    decoded_bytes,
    may_repeat,
    written_out_bytes,
)
from mindspore_rec.stream import (
    ArrowFormat,
    DataReceiver,
    DeadLetters,
    Format,
    JsonFormat,
    MemoryTopic,
    StopWhen,
    StreamLimits,
    StreamSource,
    TsvFormat,
    pack,
)

SCHEMA = pa.schema({"x": pa.int64(), "s": pa.string()})
ONE = pack(pa.table({"x": [1], "s": ["a"]}, SCHEMA))
MOST = 64 << 20


def packed(table: pa.Table, compression: str | None = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


def without_rows(column: pa.DataType) -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, pa.schema({"x": column})).close()
    return sink.getvalue().to_pybytes()


def zeros(rows: int) -> pa.Table:
    return pa.table({"x": np.zeros(rows, np.int64), "s": pa.array([""]).take(pa.array([0] * rows))})


def reason(format: Format, value: bytes) -> str:
    """Of one message between good ones, which are read."""
    decoded = format.decode([ONE, value, ONE])
    assert set(decoded.bad) == {1} and decoded.counts.tolist() == [1, 0, 1]
    return str(decoded.bad[1])


def nested(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def one_text(rows: int, kind: pa.DataType) -> pa.Array:
    """A text of a megabyte, once in memory, in every row."""
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["a" * (1 << 20)])
    _, views, text = pa.array(["a" * (1 << 20)], kind).buffers()
    views = pa.py_buffer(views.to_pybytes()[:16] * rows)
    return pa.Array.from_buffers(kind, rows, [None, views, text])


LARGE = pa.table({"x": np.zeros(180_000_000, np.int8)})
TEXT = pa.array(["a" * (100 << 20)]).dictionary_encode()
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "zstd": (lambda: packed(LARGE), "size: .* are taken"),
    "lz4": (lambda: packed(LARGE, "lz4"), "size: .* are taken"),
    "nothing, often": (lambda: pack(pa.table({"x": pa.nulls(1 << 30)})), "size: .* rows, at most"),
    "dictionary": (
        lambda: packed(pa.table({"x": [1], "s": TEXT})),
        "size: it decodes to",
    ),
    "columns": (
        lambda: pack(pa.table([[1]] * 17_000, names=[f"c{i}" for i in range(17_000)])),
        "format: more than 16384 columns",
    ),
    "depth": (
        lambda: pack(pa.table({"x": pa.nulls(1, nested(20))})),
        "format: columns nested deeper than",
    ),
    "run ends": (
        lambda: pack(pa.table({"x": pa.RunEndEncodedArray.from_arrays([1 << 30], [1])})),
        "format: a column of type run-end encoded",
    ),
    "two": (lambda: ONE + ONE, "format: .* bytes behind the end"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_bad_before_it_is_decoded(kind: str) -> None:
    make, expected = BOMBS[kind]
    value = make()
    assert len(value) < 4 << 20
    before, begin = pa.default_memory_pool().max_memory(), time.monotonic()
    assert re.match(expected, reason(ArrowFormat(SCHEMA), value))
    assert time.monotonic() - begin < 10
    assert pa.default_memory_pool().max_memory() <= before + (16 << 20)


def test_columns_of_every_refused_type_are_told() -> None:
    refused = {
        "columns nested deeper than 16": nested(16),
        "a column of type union": pa.sparse_union([pa.field("x", pa.int64())]),
        "a column of type run-end encoded": pa.run_end_encoded(pa.int32(), pa.int64()),
        "a column of type list view": pa.list_view(pa.int64()),
        "a column of type large list view": pa.large_list_view(pa.int64()),
    }
    for text, kind in refused.items():
        for column in (kind, pa.struct([("y", pa.int64()), ("z", kind)])):
            assert reason(ArrowFormat(SCHEMA), without_rows(column)) == f"format: {text}"
    assert decoded_bytes(without_rows(nested(15)), MOST) == 0


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=["dictionary", "view"]
)
def test_one_text_in_every_row(kind: pa.DataType) -> None:
    schema = pa.schema({"s": kind})
    for rows, good in ((60, True), (1000, False)):
        value = pack(pa.table({"s": one_text(rows, kind)}))
        decoded = ArrowFormat(schema).decode([value])
        assert (decoded.counts.tolist(), not decoded.bad) == ([rows if good else 0], good)
        if not good:
            assert decoded.bad[0].reason == "size"


@pytest.mark.parametrize("forged", [(40, -6), (-40, 6)])
def test_a_buffer_before_its_message_is_bad(forged: tuple[int, int]) -> None:
    value = packed(pa.table({"x": [1, 2, 3], "s": ["a", "bb", "ccc"]}, SCHEMA), None)
    texts = struct.pack("<qq", 40, 6)  # place and bytes of the last column's buffer
    assert value.count(texts) == 1
    said = reason(ArrowFormat(SCHEMA), value.replace(texts, struct.pack("<qq", *forged)))
    assert "a buffer of Arrow before its body" in said


def test_a_compressed_buffer_beyond_its_message_is_bad() -> None:
    """The last bytes of the rows are missing, and the message says that it has none there."""
    value = packed(pa.table({"x": list(range(99)), "s": ["a" * 99] * 99}, SCHEMA))
    at = SCHEMA.serialize().size  # of the message with the rows
    body = len(value) - 8 - (at + 8 + struct.unpack_from("<i", value, at + 4)[0])
    assert value.count(struct.pack("<q", body)) == 1
    cut = value.replace(struct.pack("<q", body), struct.pack("<q", body - 8))
    text = reason(ArrowFormat(SCHEMA), cut[:-16] + cut[-8:])
    assert text == "format: a buffer of Arrow beyond its body"


@pytest.mark.parametrize(
    ("more", "text"),
    [(8, "no message of Arrow where one must begin"), (16, "a body of Arrow beyond the end")],
)
def test_a_body_that_takes_the_end_of_its_message_is_bad(more: int, text: str) -> None:
    at = SCHEMA.serialize().size  # of the message with the rows
    body = len(ONE) - 8 - (at + 8 + struct.unpack_from("<i", ONE, at + 4)[0])
    assert ONE.count(struct.pack("<q", body)) == 1
    forged = ONE.replace(struct.pack("<q", body), struct.pack("<q", body + more))
    assert reason(ArrowFormat(SCHEMA), forged) == f"format: {text}"


@pytest.mark.parametrize("size", [-(1 << 31), -40, -1, 1, 4, 7, len(ONE), (1 << 31) - 1])
def test_metadata_that_is_not_in_its_message_is_bad(size: int) -> None:
    forged = ONE[:4] + struct.pack("<i", size) + ONE[8:]
    assert reason(ArrowFormat(SCHEMA), forged) == "format: metadata of Arrow beyond the end"


def test_a_compression_of_old_is_bad_and_other_notes_are_not() -> None:
    for name, bad in ((b"ARROW:experimental_compression", True), (b"ARROW:other", False)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            rows = pa.record_batch({"x": [1], "s": ["a"]}, SCHEMA)
            writer.write_batch(rows, custom_metadata={name: b"zstd"})
        value = sink.getvalue().to_pybytes()
        if bad:
            text = "format: a compression that only Arrow 0.17 has"
            assert reason(ArrowFormat(SCHEMA), value) == text
        else:
            assert ArrowFormat(SCHEMA).decode([value]).counts.tolist() == [1]


@settings(derandomize=True)
@given(st.integers(64, 3000), st.sampled_from([pa.null(), pa.int8(), pa.int64(), pa.bool_()]))
def test_what_is_told_is_the_least_limit_that_is_taken(rows: int, kind: pa.DataType) -> None:
    value = pack(pa.table({"x": pa.nulls(rows, kind)}))
    least = max(decoded_bytes(value, MOST), 4 * rows)  # a row counts for 4 bytes at least
    assert decoded_bytes(value, least) <= least
    with pytest.raises(ValueError, match="are taken"):
        decoded_bytes(value, least - 1)


SHORT_TEXTS = st.lists(st.one_of(st.none(), st.text("aé", max_size=9)), max_size=12)
FLAT = [pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.string_view()]


@settings(derandomize=True, max_examples=200)
@given(
    SHORT_TEXTS, st.sampled_from(FLAT), st.lists(st.sampled_from(["list", "struct"]), max_size=3)
)
def test_texts_are_counted_in_columns_of_any_shape(
    texts: list[str | None], flat: pa.DataType, around: list[str]
) -> None:
    """Texts of a dictionary that is small are counted as if each were the longest."""
    column = pa.array(texts, pa.string())
    if pa.types.is_dictionary(flat):
        column = column.dictionary_encode("encode")
    else:
        column = column.cast(flat)
    for each in around:
        if each == "list":
            column = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
        else:
            column = pa.StructArray.from_arrays([column], ["y"])
    assert may_repeat(column.type) == (flat != pa.string())
    sizes = [len((text or "").encode()) for text in texts]
    counted = {
        FLAT[0]: 0,
        FLAT[1]: max(sizes, default=0) * len(texts),
        FLAT[2]: sum(sizes),
    }
    assert written_out_bytes(column) == counted[flat]


def test_a_bad_message_is_known_wherever_its_piece_of_the_messages_begins() -> None:
    """One large message is decoded at a time: a bad one is told by its place among all."""
    large, bad = packed(zeros(1000)), ONE[:-20]
    decoded = ArrowFormat(SCHEMA, 16_000).decode([large, bad, large, bad, large, large, bad])
    assert [(i, decoded.bad[i].reason) for i in decoded.bad] == [(i, "format") for i in (1, 3, 6)]
    assert decoded.counts.tolist() == [1000, 0, 1000, 0, 1000, 1000, 0]


def test_the_limit_is_an_option() -> None:
    value = packed(zeros(1_000_000))
    assert ArrowFormat(SCHEMA).decode([value]).counts.tolist() == [1_000_000]
    assert "at most 250000 are taken" in reason(ArrowFormat(SCHEMA, 1_000_000), value)
    large = pack(zeros(1_000_000))  # what is not compressed takes what it is
    assert ArrowFormat(SCHEMA, 1000).decode([large]).counts.tolist() == [1_000_000]
    lines = TsvFormat(pa.schema({"x": pa.int64()}), max_decoded_bytes=1)
    decoded = lines.decode([b"1234567", b"12345678"])  # of 15 and of 16 bytes
    assert decoded.rows["x"].to_pylist() == [12345678]
    assert str(decoded.bad[0]) == "size: it decodes to 15 bytes, at most 14 are taken"
    for format in (ArrowFormat, JsonFormat, TsvFormat):
        with pytest.raises(ValueError, match="max_decoded_bytes must be in"):
            format(SCHEMA, max_decoded_bytes=0)


@settings(max_examples=40)
@given(
    st.integers(0, 300),
    st.sampled_from([None, "zstd", "lz4"]),
    st.lists(st.sampled_from("ibslgdv"), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_what_is_told_is_what_is_read(rows: int, compression: str, kinds: Any, rng: Any) -> None:
    make: dict[str, Any] = {
        "i": lambda: pa.array([rng.randint(0, 9) for _ in range(rows)], pa.int64()),
        "b": lambda: pa.array([rng.random() < 0.5 for _ in range(rows)]),
        "s": lambda: pa.array(["x" * rng.randint(0, 90) for _ in range(rows)]),
        "l": lambda: pa.array([[1.5] * rng.randint(0, 9) for _ in range(rows)]),
        "g": lambda: pa.array([{"a": 1, "b": None} for _ in range(rows)], pa.struct(
            [("a", pa.int16()), ("b", pa.string())])),
        "d": lambda: pa.array(["ab" * rng.randint(0, 3) for _ in range(rows)]).dictionary_encode(),
        "v": lambda: pa.array(["x" * rng.randint(0, 90) for _ in range(rows)], pa.string_view()),
    }  # fmt: skip
    table = pa.table([make[kind]() for kind in kinds], names=[str(i) for i in range(len(kinds))])
    value = packed(table, compression)
    told = decoded_bytes(value, MOST)
    read = pa.ipc.open_stream(value).read_all()
    assert read.equals(table)
    size = read.get_total_buffer_size()
    assert size <= told <= 2 * size + 4096 * len(kinds)
    damaged = bytearray(value)
    for _ in range(3):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    try:
        decoded_bytes(bytes(damaged), MOST)
    except ValueError:
        pass


def test_many_that_are_not_too_large_alone_are_decoded_one_after_the_other() -> None:
    topic = MemoryTopic()
    value = packed(zeros(2_500_000))  # 30 MB
    assert len(value) < 10_000
    for _ in range(20):
        topic.append(value)
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    stream = StreamSource(topic.client(), ArrowFormat(SCHEMA), 2_500_000, stop=StopWhen(batches=20))
    batches = [batch.num_rows for batch in stream]
    assert batches == [2_500_000] * 20
    assert pool.max_memory() <= max(before, 300 << 20)


WIDE = pa.schema({f"c{i}": pa.int64() for i in range(100)})
LISTS = pa.schema({"x": pa.list_(pa.struct(list(WIDE)))})
TEXTS: dict[str, tuple[Format, bytes, str]] = {
    "json: UTF-8": (JsonFormat(SCHEMA), b'{"s": "\xff\xfe"}', "format: no UTF-8"),
    "json: key": (JsonFormat(SCHEMA), b'{"x": 1, "\xc3": 2}', "format: no UTF-8"),
    "json: half a pair": (JsonFormat(SCHEMA), b'{"s": "\\ud800"}', "format: "),
    "json: half a character": (JsonFormat(SCHEMA), '{"s": "é"}'.encode()[:-3] + b'"}', "format: "),
    "json: huge number": (JsonFormat(SCHEMA), b'{"x": ' + b"9" * 1_000_000 + b"}", "format: "),
    "json: rows of nothing": (JsonFormat(WIDE), b"{}\n" * 200_000, "size: it decodes to"),
    "json: lists": (
        JsonFormat(LISTS), b'{"x": [' + b"{}," * 200_000 + b"{}]}", "size: it decodes to",
    ),
    "tsv: UTF-8": (TsvFormat(SCHEMA), b"1\t\xff", "format: "),
    "tsv: rows of nothing": (
        TsvFormat(pa.schema({"x": pa.list_(pa.int8(), 1000)})), b"\n" * 100_000, "size: it decodes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_broken_and_swollen_texts(kind: str) -> None:
    format, value, expected = TEXTS[kind]
    begin = time.monotonic()
    decoded = format.decode([value])
    assert decoded.counts.tolist() == [0] and str(decoded.bad[0]).startswith(expected)
    assert time.monotonic() - begin < 10


def test_deep_json_ends_neither_the_process_nor_the_stream() -> None:
    deep = b'{"x": 1, "more": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    declared = b'{"x": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    decoded = JsonFormat(SCHEMA).decode([b'{"x": 0}', deep, declared, b'{"x": 2}'])
    assert decoded.rows["x"].to_pylist() == [0, 1, 2] and list(decoded.bad) == [2]


def test_broken_text_is_a_letter_with_its_reason() -> None:
    topic, dead = MemoryTopic(), MemoryTopic()
    for value in (b'{"s": "a"}', b'{"s": "\xff"}', b'{"s": "b"}'):
        topic.append(value)
    letters = DeadLetters(dead.producer(), "dead")
    stop = StopWhen(idle_seconds=0.2)
    stream = StreamSource(topic.client(), JsonFormat(SCHEMA), 9, dead_letters=letters, stop=stop)
    assert [batch["s"].to_pylist() for batch in stream] == [["a", "b"]]
    (letter,) = dead.messages()
    assert dict(letter.headers)["reason"] == b"format" and letter.value == b'{"s": "\xff"}'


@pytest.mark.parametrize(("turn", "unread"), [(1, ""), (4, "partitions [1, 2] stay unread")])
def test_partitions_that_wait_for_a_turn_are_named(
    caplog: pytest.LogCaptureFixture, turn: int, unread: str
) -> None:
    topic = MemoryTopic(3)
    for partition in range(3):
        for x in range(3):
            topic.append(f'{{"x": {x}}}'.encode(), partition)
    limits, stop = StreamLimits(turn_messages=turn), StopWhen(idle_seconds=0.2)
    stream = StreamSource(topic.client(), JsonFormat(SCHEMA), 9, limits=limits, stop=stop)
    assert sum(batch.num_rows for batch in stream) == (3 if unread else 9)
    assert (unread in caplog.text) and ("turn_messages" in caplog.text) == bool(unread)


@pytest.mark.parametrize("number", [None, b"-1", b"\xff", b"9" * 30, b"1_0", b" 3", b""])
@pytest.mark.parametrize("name", [None, b"w", b"\xff"])
def test_headers_that_no_sender_writes(name: bytes | None, number: bytes | None) -> None:
    topic = MemoryTopic()
    headers: Any = [("producer", name), ("sequence", number)]
    for _ in range(2):
        topic.append(ONE, headers=headers)
    topic.append(ONE, headers=[("producer", b"w"), ("sequence", b"0")])
    with DataReceiver(topic, batch_size=9, stop=StopWhen(idle_seconds=0.1)) as receiver:
        assert [batch.num_rows for batch in receiver] == [3]
        assert set(receiver.state_dict()["order"]["sequences"]) == {"0"}


def test_columns_that_are_there_twice_do_not_become_the_schema() -> None:
    twice = pack(pa.Table.from_arrays([[1], [2]], names=["x", "x"]))
    format = ArrowFormat()
    decoded = format.decode([twice, ONE])
    assert (list(decoded.bad), decoded.counts.tolist(), format.schema) == ([0], [0, 1], SCHEMA)
