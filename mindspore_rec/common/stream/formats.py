# SPDX-License-Identifier: Apache-2.0
"""Formats of messages: Arrow record batches, lines of TSV, lines of JSON.

A format reads many messages at once, because one row per message is common and a parser call is
expensive. If several messages cannot be read together, the list of messages is halved repeatedly
until the bad messages are isolated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv, json as arrow_json

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import join_rows, one_array
from mindspore_rec.common.stream.arrow_bounds import (
    TooLargeError,
    decoded_bytes,
    may_repeat,
    written_out_bytes,
)
from mindspore_rec.common.stream.client import Message

__all__ = [
    "ArrowFormat",
    "BadMessageError",
    "Decoded",
    "Format",
    "JsonFormat",
    "TsvFormat",
    "pack",
]


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORTH_THREADS = 1 << 16
_MOST_DECODED = 64 << 20
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class BadMessageError(ValueError):
    """Raised if a message does not contain rows of the schema.

    Args:
        reason: "empty", "size", "format", "schema", "null", "time" or "value". The reasons mean:
            "empty": the message has no bytes; "size": the message has too many bytes, encoded or
            decoded; "format": the message is not in the expected format; "schema": columns or types
            differ from the schema; "null": a required value is missing; "time": an event time is in
            the future; "value": a value is illegal in its column.
        detail: description of the defect.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Decoded(NamedTuple):
    """Decoded rows of messages.

    Args:
        rows: rows of all good messages, in order.
        counts: int64, number of rows of each message; 0 for a bad message.
        bad: dict from the index of a bad message to the message's error.
    """

    rows: pa.RecordBatch
    counts: np.ndarray
    bad: dict[int, BadMessageError]


def pack(rows: Any) -> bytes:
    """Encode rows as one message of `ArrowFormat`: the bytes of an Arrow IPC stream.

    Args:
        rows: an Arrow RecordBatch or Table.

    Example:
        >>> value = pack(pa.table({"x": [1, 2]}))
        >>> ArrowFormat().decode([value]).rows.num_rows
        2
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(memoryview(sink.getvalue()))


class Format(ABC):
    """Reader of messages whose rows have one schema.

    Args:
        schema: the required columns with their types. A field that is not nullable must have no
            missing value. Columns that are not in the schema are dropped.
        max_decoded_bytes: maximum number of bytes that a message's rows take in memory, at least 1
            (default 64 MiB). A message is bad if its rows take more than `max_decoded_bytes`, and
            also more than twice the size of the encoded message.

    Attributes:
        check: function that checks rows, and raises BadMessageError if a value is illegal in its
            column. Default: None.
        sequence_of: function that returns a message's producer and sequence number, or None for a
            message without a number. Sequence numbers are used to detect duplicates. Default:
            None, which means that no message has a number.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or `schema` has no
            columns or a name twice.
    """

    def __init__(self, schema: pa.Schema | None, max_decoded_bytes: int = _MOST_DECODED) -> None:
        if schema is not None and not isinstance(schema, pa.Schema):
            raise TypeError(f"schema must be a pyarrow.Schema, got {type(schema).__name__}")
        if schema is not None and (not len(schema) or len(set(schema.names)) < len(schema)):
            raise ValueError(f"schema must have columns with distinct names, got {schema.names}")
        self.schema = schema
        self.check: Callable[[pa.RecordBatch], None] | None = None
        self.sequence_of: Callable[[Message], Any] | None = None
        self._widths: tuple[int, int] | None = None
        self.max_decoded_bytes = check_int("max_decoded_bytes", max_decoded_bytes, 1, 1 << 40)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode messages that are not empty.

        The errors of bad messages are returned in the result, and not raised.
        """
        decoded = self.decode_some(values)
        if len(decoded.counts) == len(values):
            return decoded
        pieces, at = [decoded], len(decoded.counts)
        bad = dict(decoded.bad)
        while at < len(values):
            decoded = self.decode_some(values[at:])
            pieces.append(decoded)
            bad.update({at + i: error for i, error in decoded.bad.items()})
            at += len(decoded.counts)
        rows = [piece.rows for piece in pieces if piece.rows.num_rows]
        counts = np.concatenate([piece.counts for piece in pieces])
        return Decoded(join_rows(rows or [pieces[0].rows]), counts, bad)

    def decode_some(self, values: Sequence[bytes]) -> Decoded:
        """Decode the first messages that together fit in `max_decoded_bytes`.

        A message that is too large is bad and is not decoded. Each call decodes or refuses at least
        one message.
        """
        refused: dict[int, BadMessageError] = {}
        total = taken = 0
        for value in values:
            try:
                size = self._weigh(value)
            except BadMessageError as error:
                refused[taken] = error
                size = 0
            if taken and total + size > self.max_decoded_bytes:
                break
            total += size
            taken += 1
        return self._decode(values if taken == len(values) else values[:taken], refused)

    def _decode(self, values: Sequence[bytes], refused: dict[int, BadMessageError]) -> Decoded:
        places = [i for i in range(len(values)) if i not in refused]
        row_counts = np.zeros(len(places), np.int64)
        wrong: dict[int, BadMessageError] = {}
        parts: list[pa.RecordBatch] = []
        if places:
            chosen = [values[i] for i in places] if refused else values
            self._halve(chosen, 0, row_counts, wrong, parts)
        counts = np.zeros(len(values), np.int64)
        counts[places] = row_counts
        bad = dict(refused)
        bad.update({places[i]: error for i, error in wrong.items()})
        schema = self.schema if self.schema is not None else pa.schema([])
        rows = join_rows(parts) if parts else pa.RecordBatch.from_pylist([], schema)
        return Decoded(rows, counts, bad)

    def _halve(
        self,
        values: Sequence[bytes],
        place: int,
        counts: np.ndarray,
        bad: dict[int, BadMessageError],
        parts: list[pa.RecordBatch],
    ) -> None:
        try:
            rows, row_counts = self._read(values)
            if self.check is not None:
                self.check(rows)
        except BadMessageError as error:
            if len(values) == 1:
                bad[place] = error
                return
            half = len(values) // 2
            self._halve(values[:half], place, counts, bad, parts)
            self._halve(values[half:], place + half, counts, bad, parts)
            return
        counts[place : place + len(values)] = row_counts
        if rows.num_rows:
            parts.append(rows)

    def _refusal(self, value: bytes) -> str:
        """Return the defect that a quick check finds in a message, or an empty string."""
        return ""

    def _weigh(self, value: bytes) -> int:
        """Return the approximate size of a message's rows in bytes, or raise BadMessageError."""
        why = self._refusal(value)
        if why:
            raise BadMessageError("format", why)
        if self._widths is None:
            self._widths = _row_widths(self.schema)
        row, element = self._widths
        size = len(value) + row * (value.count(b"\n") + 1)
        if element:
            size += element * (value.count(b",") + value.count(b"["))
        if size > self._most(value):
            raise BadMessageError(
                "size", f"it decodes to {size} bytes, at most {self._most(value)} are taken"
            )
        return size

    def _most(self, value: bytes) -> int:
        return max(self.max_decoded_bytes, 2 * len(value))

    @abstractmethod
    def _read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray]:
        """Return the rows of messages, and the number of rows in each message.

        A bad message raises BadMessageError.
        """

    def _checked(self, rows: pa.Table) -> pa.RecordBatch:
        """Check types and missing values of rows, and return the schema's columns."""
        assert self.schema is not None
        arrays = []
        for field in self.schema:
            place = rows.schema.get_field_index(field.name)
            if place < 0:
                raise BadMessageError("schema", f"column {field.name!r} is missing or there twice")
            column = rows.column(place)
            if _are_empty_lists(column.type) and _is_list(field.type):
                column = column.cast(field.type)
            if column.type != field.type:
                raise BadMessageError(
                    "schema", f"column {field.name!r} is {column.type}, expected {field.type}"
                )
            if not field.nullable and column.null_count:
                raise BadMessageError("null", f"column {field.name!r} has missing values")
            arrays.append(one_array(column))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class ArrowFormat(Format):
    """Format of messages that are Arrow IPC streams. Messages of about 1000 rows are fast to read.

    Args:
        schema: the columns. None means the columns of the first readable message.
        max_decoded_bytes: as for `Format`. The decoded size is computed from the metadata, because
            a small message may be compressed. A message is refused if it has columns of unions, run
            ends or list views, or more than 16,384 columns.

    Example:
        >>> packed = pack(pa.table({"x": [1, 2]}))
        >>> decoded = ArrowFormat(pa.schema({"x": pa.int64()})).decode([packed, packed[:-20]])
        >>> decoded.counts.tolist(), list(decoded.bad), decoded.bad[1].reason
        ([2, 0], [1], 'format')
    """

    def __init__(
        self, schema: pa.Schema | None = None, max_decoded_bytes: int = _MOST_DECODED
    ) -> None:
        super().__init__(schema, max_decoded_bytes)
        self._known: set[bytes] = set()
        self._repeating: list[int] | None = None  # columns whose texts may be there many times

    def _weigh(self, value: bytes) -> int:
        # Check the end marker, because Arrow also accepts a truncated stream, and would then lose
        # rows silently.
        if not value.endswith(_END):
            raise BadMessageError("format", "an Arrow stream without its end")
        try:
            return decoded_bytes(value, self._most(value), self._known)
        except TooLargeError as error:
            raise BadMessageError("size", _short(error)) from error
        except ValueError as error:
            raise BadMessageError("format", _short(error)) from error

    def _halve(
        self,
        values: Sequence[bytes],
        place: int,
        counts: np.ndarray,
        bad: dict[int, BadMessageError],
        parts: list[pa.RecordBatch],
    ) -> None:
        for i, value in enumerate(values):
            super()._halve([value], place + i, counts, bad, parts)

    def _read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray]:
        table = _open(values[0])
        if self.schema is None:  # the schema of the first message that can be read
            self.schema = self._first_schema(table)
        rows = self._checked(table)
        if self._repeating is None:
            self._repeating = [i for i, field in enumerate(self.schema) if may_repeat(field.type)]
        size = sum(written_out_bytes(rows.column(i)) for i in self._repeating)
        if size > self._most(values[0]):
            raise BadMessageError(
                "size", f"its texts are {size} bytes, at most {self._most(values[0])} are taken"
            )
        return rows, np.array([rows.num_rows])

    def _first_schema(self, table: pa.Table) -> pa.Schema:
        """Return the columns of the first message."""
        names = table.schema.names
        if not names or len(set(names)) < len(names):
            raise BadMessageError("schema", f"columns must have distinct names, got {names}")
        return table.schema.remove_metadata()


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _are_empty_lists(kind: pa.DataType) -> bool:
    """Return True if `kind` is a list of Arrow's null type, which is the type of empty lists."""
    return _is_list(kind) and bool(pa.types.is_null(kind.value_type))


class TsvFormat(Format):
    """Format of messages with one or more lines of tab-separated values, and without a header.

    Args:
        schema: the columns in the order of the values.
        null_values: texts that mean a missing value (default: only the empty text).
        max_decoded_bytes: as for `Format`.

    Example:
        >>> tsv = TsvFormat(pa.schema({"label": pa.int8(), "C1": pa.string()}))
        >>> decoded = tsv.decode([b"1\\tabc", b"x\\tdef", b"0\\t\\n"])
        >>> decoded.rows.to_pylist(), decoded.bad[1].reason
        ([{'label': 1, 'C1': 'abc'}, {'label': 0, 'C1': None}], 'format')
    """

    def __init__(
        self,
        schema: pa.Schema,
        null_values: Sequence[str] = ("",),
        max_decoded_bytes: int = _MOST_DECODED,
    ) -> None:
        super().__init__(schema, max_decoded_bytes)
        self._nulls = list(null_values)

    def _refusal(self, value: bytes) -> str:
        assert self.schema is not None
        if value.startswith(_BYTE_ORDER_MARK):  # Arrow would skip it
            return "a byte order mark"
        lines = value.count(b"\n") + (not value.endswith(b"\n"))
        tabs, expected = value.count(b"\t"), lines * (len(self.schema) - 1)
        return "" if tabs == expected else f"{tabs} tabs in {lines} lines, expected {expected}"

    def _read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray]:
        text, counts = _lines(values)
        schema = self.schema
        assert schema is not None
        try:
            table = csv.read_csv(
                pa.BufferReader(text),
                csv.ReadOptions(
                    column_names=schema.names,
                    block_size=max(len(text) + 1, 1 << 20),
                    use_threads=len(text) > _WORTH_THREADS,
                ),
                csv.ParseOptions(
                    delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False
                ),
                csv.ConvertOptions(
                    column_types=schema,
                    null_values=self._nulls,
                    strings_can_be_null=True,
                    check_utf8=True,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise BadMessageError("format", _short(error)) from error
        return _counted(self._checked(table), counts)


class JsonFormat(Format):
    """Format of messages that consist of one or more lines. Each line is a JSON object.

    Args:
        schema: the columns. If an object lacks a column, the column's value is missing in the
            object's row.
        max_decoded_bytes: as for `Format`.

    Example:
        >>> lines = JsonFormat(pa.schema({"user": pa.int64()}))
        >>> decoded = lines.decode([b'{"user": 7, "more": 1}', b'{"user": "x"}'])
        >>> decoded.rows.to_pylist(), decoded.bad[1].reason
        ([{'user': 7}], 'format')
    """

    def _refusal(self, value: bytes) -> str:
        if not value.isascii():  # the parser takes any bytes, and would have them found later
            try:
                value.decode()
            except UnicodeDecodeError as error:
                return f"no UTF-8: {error}"
        # Check that each line is an object. Arrow's parser ignores line breaks, and would join the
        # halves of an object that is split between two messages.
        for line in value.removesuffix(b"\n").split(b"\n"):
            line = line.strip()
            if not (line.startswith(b"{") and line.endswith(b"}")):
                return "a line that is no JSON object"
        return ""

    def _read(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray]:
        text, counts = _lines(values)
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                arrow_json.ParseOptions(
                    explicit_schema=self.schema, unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadMessageError("format", _short(error)) from error
        return _counted(self._checked(table), counts)


def _open(value: bytes) -> pa.Table:
    try:
        table = pa.ipc.open_stream(value).read_all()
        table.validate(full=True)  # what a faulty producer wrote must not crash a kernel
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise BadMessageError("format", _short(error)) from error
    return table


def _row_widths(schema: pa.Schema | None) -> tuple[int, int]:
    """Return two sizes in bytes: a row without texts, and the largest element of a list."""
    kinds = [] if schema is None else [field.type for field in schema]
    elements = [_width(each) for kind in kinds for each in _elements(kind)]
    return sum(map(_width, kinds)), max(elements, default=0)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    try:
        return (int(kind.bit_width) + 7) // 8
    except ValueError:
        return 8  # the place of a text or a list


def _elements(kind: pa.DataType) -> list[pa.DataType]:
    """Return the element types of all lists inside a type."""
    if pa.types.is_struct(kind):
        return [each for i in range(kind.num_fields) for each in _elements(kind.field(i).type)]
    if not pa.types.is_nested(kind):
        return []
    if pa.types.is_map(kind):
        return [pa.struct([kind.key_field, kind.item_field])]
    value = getattr(kind, "value_type", None)
    return [] if value is None else [value, *_elements(value)]


def _lines(values: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    """Join messages into whole lines, and return the number of lines of each message."""
    ended = [value if value.endswith(b"\n") else value + b"\n" for value in values]
    counts = np.fromiter((value.count(b"\n") for value in ended), np.int64, len(ended))
    return b"".join(ended), counts


def _counted(rows: pa.RecordBatch, counts: np.ndarray) -> tuple[pa.RecordBatch, np.ndarray]:
    if rows.num_rows != counts.sum():
        raise BadMessageError("format", f"{counts.sum()} lines and {rows.num_rows} rows")
    return rows, counts


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."
