# SPDX-License-Identifier: Apache-2.0
"""Split a ModelInferRequest before protobuf decodes it, so that no request uses much memory.

In a message, an empty input takes two bytes; after decoding, the input takes some hundred bytes of
memory. To limit the memory, the fields of a message are counted before the message is decoded. The
numbers are removed from the message. First, the count of numbers is compared with the shape; then
NumPy decodes the numbers. Protobuf decodes the few remaining bytes of the message.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mindspore_rec.serve.protocol.request_error import RequestError

__all__ = [
    "MOST_QUICK_FIELDS", "InferParts", "ManyFieldsError", "count_of", "numbers_of", "split_infer"
]  # fmt: skip

MOST_QUICK_FIELDS = 1024
"""Fields that are walked over in about a millisecond."""

_MOST_FIELDS = 1 << 14
_MOST_REST = 1 << 18  # bytes
_MOST_VARINT = 10  # bytes
_PART = 1 << 18  # bytes of numbers that are decoded at a time

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INPUTS, _RAW = 5, 7  # numbers of fields of a ModelInferRequest
_CONTENTS = 5  # of an InferInputTensor
_BOOL, _INT, _INT64, _UINT, _UINT64, _FP32, _FP64, _TEXTS = range(1, 9)  # of its contents
_NAMES = {
    _BOOL: "bool_contents", _INT: "int_contents", _INT64: "int64_contents", _UINT: "uint_contents",
    _UINT64: "uint64_contents", _FP32: "fp32_contents", _FP64: "fp64_contents",
    _TEXTS: "bytes_contents",
}  # fmt: skip
_SINGLE = dict.fromkeys(_NAMES, _VARINT) | {_FP32: _FIXED32, _FP64: _FIXED64, _TEXTS: _BYTES}
_DTYPES = {
    "bool_contents": np.dtype(np.bool_), "int_contents": np.dtype(np.int32),
    "int64_contents": np.dtype(np.int64), "uint_contents": np.dtype(np.uint32),
    "uint64_contents": np.dtype(np.uint64), "fp32_contents": np.dtype("<f4"),
    "fp64_contents": np.dtype("<f8"),
}  # fmt: skip


class ManyFieldsError(RequestError):
    """Error for a message with too many fields."""


@dataclass
class InferParts:
    """A ModelInferRequest in parts.

    Attributes:
        rest: the message without numbers, for protobuf.
        contents: for each input, a dict from field names to the bytes of the fields' numbers; None
            if the input has no `contents`.
        raw: `raw_input_contents`.
    """

    rest: bytes = b""
    contents: list[dict[str, list[memoryview]] | None] = field(default_factory=list)
    raw: list[memoryview] = field(default_factory=list)


def split_infer(data: bytes, most_fields: int = _MOST_FIELDS) -> InferParts:
    """Return the parts of a ModelInferRequest.

    Args:
        data: the message.
        most_fields: maximum number of protobuf fields in the message, including the fields of the
            nested messages `inputs`. A sequence of packed numbers (protobuf's default) counts as
            one field. Default: 16,384.

    Raises:
        ManyFieldsError: the message has more than `most_fields` fields.
        RequestError: the bytes are not a ModelInferRequest, or the message without its numbers is
            too large.

    Example:
        >>> parts = split_infer(bytes.fromhex("0a016d 2a08 0a0178 2a031a0105"))
        >>> parts.rest.hex(), [bytes(each) for each in parts.contents[0]["int64_contents"]]
        ('0a016d2a030a0178', [b'\\x05'])
    """
    walk = _Walk(memoryview(data), most_fields)
    parts, rest = InferParts(), bytearray()
    for number, kind, whole, value in walk.fields(0, len(data)):
        if (number, kind) == (_RAW, _BYTES):
            parts.raw.append(walk.data[value])
        elif (number, kind) == (_INPUTS, _BYTES):
            tensor, contents = _split_input(walk, value)
            rest += b"\x2a" + _varint(len(tensor)) + tensor
            parts.contents.append(contents)
        else:
            rest += walk.data[whole]
        if len(rest) > _MOST_REST:
            raise RequestError(
                f"names, shapes and parameters of the request must have at most {_MOST_REST} bytes"
            )
    parts.rest = bytes(rest)
    return parts


def count_of(name: str, pieces: list[memoryview]) -> int:
    """Return the number of values in a field of `contents`.

    Args:
        name: name of a field of numbers or bools.
        pieces: bytes of the field, in order.

    Raises:
        RequestError: the bytes are not numbers of the field's type.

    Example:
        >>> count_of("int_contents", [memoryview(b"\\x01\\x96\\x01")])
        2
    """
    size = _DTYPES[name].itemsize
    if _DTYPES[name].kind == "f":
        if any(len(piece) % size for piece in pieces):
            raise _no_message()
        return sum(map(len, pieces)) // size
    if any(piece[-1] >= 0x80 for piece in pieces):
        raise _no_message()
    return sum(int(np.count_nonzero(np.frombuffer(each, np.uint8) < 0x80)) for each in pieces)


def numbers_of(name: str, pieces: list[memoryview], count: int) -> np.ndarray:
    """Return the numbers in a field of `contents`; `count` must be the result of `count_of`.

    Raises:
        RequestError: the bytes are not numbers of the field's type.

    Example:
        >>> numbers_of("int_contents", [memoryview(b"\\x01\\x96\\x01")], 2)
        array([  1, 150], dtype=int32)
    """
    dtype = _DTYPES[name]
    numbers = np.empty(count, dtype.newbyteorder("="))
    at = 0
    for piece in pieces:
        if dtype.kind == "f":
            parts = iter([np.frombuffer(piece, dtype)])
        else:
            parts = map(_decoded, _cut(np.frombuffer(piece, np.uint8)))
        for part in parts:
            numbers[at : at + len(part)] = part.astype(dtype, copy=False)
            at += len(part)
    return numbers


def _split_input(walk: _Walk, place: slice) -> tuple[bytes, dict[str, list[memoryview]] | None]:
    rest = bytearray()
    contents: dict[str, list[memoryview]] | None = None
    for number, kind, whole, value in walk.fields(place.start, place.stop):
        if (number, kind) != (_CONTENTS, _BYTES):
            rest += walk.data[whole]
            continue
        contents = {} if contents is None else contents
        for of, how, _, at in walk.fields(value.start, value.stop):
            if of not in _NAMES or how not in (_BYTES, _SINGLE[of]):
                continue  # a field that protobuf would not know either
            if at.start < at.stop or of == _TEXTS:
                contents.setdefault(_NAMES[of], []).append(walk.data[at])
    return bytes(rest), contents


class _Walk:
    """Iterate over the fields of a message."""

    def __init__(self, data: memoryview, most: int) -> None:
        self.data, self._most, self._left = data, most, most

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, slice, slice]]:
        """For each field, yield its number, its kind, the slice of the field and the slice of the
        value."""
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise ManyFieldsError(
                    f"the request must have at most {self._most} fields: give numbers packed, or "
                    "in raw_input_contents"
                )
            begin = at
            tag, at = self._varint(at, end)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise _no_message()
            value = at
            if kind == _VARINT:
                _, at = self._varint(at, end)
            elif kind == _BYTES:
                size, value = self._varint(at, end)
                at = value + size
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            else:  # groups, which no message of today has
                raise _no_message()
            if at > end:
                raise _no_message()
            yield number, kind, slice(begin, at), slice(value, at)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        number = shift = 0
        for place in range(at, min(end, at + _MOST_VARINT)):
            byte = self.data[place]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number, place + 1
            shift += 7
        raise _no_message()


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _cut(data: np.ndarray) -> Iterator[np.ndarray]:
    """Yield consecutive parts of at most `_PART` bytes; no number is split between two parts."""
    at = 0
    while at < len(data):
        end = min(at + _PART, len(data))
        tail = np.flatnonzero(data[max(at, end - _MOST_VARINT) : end] < 0x80)
        if not len(tail):
            raise _no_message()
        end = max(at, end - _MOST_VARINT) + int(tail[-1]) + 1
        yield data[at:end]
        at = end


def _decoded(data: np.ndarray) -> np.ndarray:
    """Return varints as uint64."""
    ends = np.flatnonzero(data < 0x80)
    begins = np.empty_like(ends)
    begins[:1] = 0
    begins[1:] = ends[:-1] + 1
    longest = int((ends - begins).max()) + 1
    if longest > _MOST_VARINT:
        raise _no_message()
    numbers = (data[begins] & 0x7F).astype(np.uint64)
    for byte in range(1, longest):
        more = np.flatnonzero(ends - begins >= byte)
        numbers[more] |= (data[begins[more] + byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
    return numbers


def _no_message() -> RequestError:
    return RequestError("the request must be a inference.ModelInferRequest")
