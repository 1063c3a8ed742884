# SPDX-License-Identifier: Apache-2.0
"""Messages taken apart by hand, beside protobuf."""

from __future__ import annotations

import math
import random
import resource
import time
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings, strategies as st

from mindspore_rec.serve.protocol.open_inference import message
from mindspore_rec.serve.protocol.request_error import RequestError
from mindspore_rec.serve.protocol.wire import (
    ManyFieldsError,
    count_of,
    numbers_of,
    split_infer,
)
from tests.support.processes import run_python

REQUEST = message("ModelInferRequest")
FIELDS = {
    "bool_contents": st.booleans(),
    "int_contents": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64_contents": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint_contents": st.integers(0, (1 << 32) - 1),
    "uint64_contents": st.integers(0, (1 << 64) - 1),
    "fp32_contents": st.floats(width=32, allow_nan=False) | st.just(math.nan),
    "fp64_contents": st.floats(allow_nan=False) | st.just(math.nan),
    "bytes_contents": st.binary(max_size=5),
}
CONTENTS = st.fixed_dictionaries(
    {}, optional={n: st.lists(v, max_size=9) for n, v in FIELDS.items()}
)
PARAMETERS: st.SearchStrategy[dict[str, dict[str, Any]]] = st.dictionaries(
    st.text(max_size=3), st.builds(dict), max_size=2
)
INPUT = st.fixed_dictionaries(
    {"name": st.text(max_size=5)},
    optional={
        "datatype": st.text(max_size=5), "shape": st.lists(FIELDS["int64_contents"], max_size=4),
        "contents": CONTENTS, "parameters": PARAMETERS,
    },
)  # fmt: skip
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "model_name": st.text(max_size=5), "id": st.text(max_size=5),
        "inputs": st.lists(INPUT, max_size=3),
        "outputs": st.lists(st.fixed_dictionaries({"name": st.text(max_size=3)}), max_size=2),
        "raw_input_contents": st.lists(st.binary(max_size=9), max_size=3),
    },
)  # fmt: skip


def joined(data: bytes) -> Any:
    """The message that the parts of one lead to."""
    parts = split_infer(data)
    made = REQUEST.FromString(parts.rest)
    made.raw_input_contents.extend(map(bytes, parts.raw))
    assert len(made.inputs) == len(parts.contents)
    for each, contents in zip(made.inputs, parts.contents, strict=True):
        assert not each.HasField("contents")
        if contents is None:
            continue
        each.contents.SetInParent()
        for name, pieces in contents.items():
            if name == "bytes_contents":
                each.contents.bytes_contents.extend(map(bytes, pieces))
                continue
            numbers = numbers_of(name, pieces, count_of(name, pieces))
            getattr(each.contents, name).extend(numbers.tolist())
    return made


def same(data: bytes) -> None:
    """Protobuf reads the same, or neither reads it; numbers are looked at by their bits."""
    try:
        expected = REQUEST.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        expected = None
    try:
        found = joined(data)
    except (RequestError, DecodeError, UnicodeDecodeError):
        found = None
    if expected is None or found is None:
        assert found is None
        return
    for each in (expected, found):
        each.DiscardUnknownFields()
    assert found.SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )


@settings(max_examples=200, deadline=None)
@given(MESSAGE, st.data())
def test_parts_are_those_that_protobuf_reads(given_: Any, more: st.DataObject) -> None:
    data = REQUEST(**given_).SerializeToString()
    same(data)
    assert joined(data) is not None
    at = more.draw(st.integers(0, len(data)))
    same(data[:at] + more.draw(st.binary(max_size=4)) + data[at:])
    other = REQUEST(**more.draw(MESSAGE)).SerializeToString()
    same(data + other)


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "bytes_contents"])
def test_numbers_that_are_not_packed(name: str) -> None:
    rng = random.Random(name)
    number = REQUEST.DESCRIPTOR.fields_by_name["inputs"].message_type.fields_by_name["contents"]
    field = number.message_type.fields_by_name[name].number
    kind, size = {"fp32_contents": (5, 4), "fp64_contents": (1, 8)}.get(name, (0, 0))
    body = b""
    for _ in range(50):
        data = rng.randbytes(size) if size else bytes([rng.randrange(128, 256), rng.randrange(128)])
        body += bytes([field << 3 | kind]) + data
    packed = bytes([field << 3 | 2, len(data)]) + data
    contents = body + packed + body
    tensor = bytes([0x2A]) + varint(len(contents)) + contents
    same(bytes([0x2A]) + varint(len(tensor)) + tensor)


def varint(number: int) -> bytes:
    made = b""
    while number >= 128:
        made += bytes([number % 128 + 128])
        number //= 128
    return made + bytes([number])


def test_many_numbers_are_those_that_were_written() -> None:
    numbers = np.random.default_rng(0).integers(-(1 << 63), (1 << 63) - 1, 200_000)
    numbers >>= np.random.default_rng(1).integers(0, 64, len(numbers))
    data = REQUEST(inputs=[{"contents": {"int64_contents": numbers.tolist()}}]).SerializeToString()
    (contents,) = split_infer(data).contents
    assert contents is not None
    pieces = contents["int64_contents"]
    assert count_of("int64_contents", pieces) == len(numbers)
    np.testing.assert_array_equal(numbers_of("int64_contents", pieces, len(numbers)), numbers)


SWOLLEN = {
    "inputs": b"\x2a\x00" * (24 << 20),
    "outputs": b"\x32\x00" * (24 << 20),
    "raw": b"\x3a\x00" * (24 << 20),
    "parameters": b"\x22\x00" * (24 << 20),
    "texts": b"\x2a" + varint((48 << 20) + 5) + b"\x2a" + varint(48 << 20) + b"\x42\0" * (24 << 20),
    "sizes": b"\x2a" + varint(48 << 20) + b"\x18\x01" * (24 << 20),
}  # fmt: skip


@pytest.mark.parametrize("what", SWOLLEN)
def test_small_fields_are_counted_before_they_take_memory(what: str) -> None:
    data = SWOLLEN[what]
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    with pytest.raises((ManyFieldsError, RequestError)):
        split_infer(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert time.thread_time() - begin < 1


def test_other_threads_run_while_numbers_are_decoded() -> None:
    """In a process of its own, whose threads are these two.

    The time is the processor's that the decoding takes, and the best of some tries counts: a busy
    machine may let the other thread wait although it could run.
    """
    script = """if True:
        import threading, time
        from mindspore_rec.serve.protocol.wire import count_of, numbers_of
        pieces = [memoryview(b"\\xff\\xff\\xff\\x7f" * (4 << 20))]
        clock = time.pthread_getcpuclockid(threading.main_thread().ident)
        def watch():
            global longest
            last = time.clock_gettime(clock)
            while not done:
                time.sleep(0.001)
                now = time.clock_gettime(clock)
                longest, last = max(longest, now - last), now
        for _ in range(5):
            longest, done = 0.0, False
            thread = threading.Thread(target=watch)
            thread.start()
            begin = time.clock_gettime(clock)
            numbers_of("int64_contents", pieces, count_of("int64_contents", pieces))
            took = time.clock_gettime(clock) - begin
            done = True
            thread.join()
            print(took, longest)
    """
    printed = run_python("-c", script)
    tries = [map(float, line.split()) for line in printed.splitlines()]
    assert any(longest < max(0.1, took / 3) for took, longest in tries), printed
