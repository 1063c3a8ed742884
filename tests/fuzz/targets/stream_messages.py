# SPDX-License-Identifier: Apache-2.0
"""Targets: messages of a topic (rows, announcements), and a stream's own journal."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa

from mindspore_rec.common.stream.announcements import AnnouncementReader
from mindspore_rec.stream import ArrowFormat, Format, Journal, JsonFormat, TsvFormat, pack
from tests.fuzz.harness import Target, scratch

__all__ = ["TARGETS"]

_DIRECTORY = scratch()
_MOST = 1 << 20

_SCHEMA = pa.schema(
    [
        pa.field("user", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("views", pa.float32()),
        pa.field("at", pa.timestamp("ms")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)
_FLAT = pa.schema([_SCHEMA.field(i) for i in range(4)])
_NESTED = pa.schema([_SCHEMA.field(i) for i in range(5)])
_GOOD: dict[str, list[Any]] = {
    "user": [7], "text": ["a"], "views": [0.5], "at": [0], "tags": [["x"]], "kind": ["k"],
}  # fmt: skip


def _good(schema: pa.Schema) -> pa.Table:
    return pa.table({name: _GOOD[name] for name in schema.names}, schema)


def _decode(made: Format, good: bytes, data: bytes) -> None:
    """A message between good ones: it is bad, or its rows are sound and nobody else's."""
    if not data:  # which Format requires
        return
    decoded = made.decode([good, data, good])
    assert set(decoded.bad) <= {1} and decoded.counts[0] == decoded.counts[2] == 1
    assert decoded.rows.num_rows == decoded.counts.sum()
    decoded.rows.validate(full=True)
    assert decoded.rows.nbytes <= 2 * max(_MOST, 2 * len(data)) + 1000
    _shown(decoded.rows)
    alone = made.decode([data])
    assert (0 in alone.bad) == (1 in decoded.bad)
    if 0 not in alone.bad and alone.counts[0]:
        there = decoded.rows.slice(1, int(decoded.counts[1]))
        # By their values: a dictionary is another one, and NaN is not itself.
        assert _shown(there) == _shown(alone.rows)


def _shown(rows: pa.RecordBatch) -> str:
    """Values of some rows; Python has no dates before the year 1."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in rows.slice(0, 200).columns
    ]
    return str([column.to_pylist() for column in columns])


_ARROW = pack(_good(_SCHEMA))
_FORMATS: dict[str, tuple[Format, bytes]] = {
    "arrow": (ArrowFormat(_SCHEMA, _MOST), _ARROW),
    "tsv": (TsvFormat(_FLAT, ["", "-"], _MOST), b"7\ta\t0.5\t1970-01-01 00:00:00"),
    "json": (JsonFormat(_NESTED, _MOST), b'{"user": 7, "tags": ["x"]}'),
}


def arrow(data: bytes) -> None:
    _decode(*_FORMATS["arrow"], data)
    if data:  # a schema of its own
        decoded = ArrowFormat(None, _MOST).decode([data])
        decoded.rows.validate(full=True)


def tsv(data: bytes) -> None:
    _decode(*_FORMATS["tsv"], data)


def json_lines(data: bytes) -> None:
    _decode(*_FORMATS["json"], data)


def journal(data: bytes) -> None:
    """ValueError is what it documents; a torn last line is dropped."""
    path = _DIRECTORY / "journal"
    path.write_bytes(data)
    try:
        found = Journal(path)
    except ValueError:
        return
    again = Journal(path)
    assert [found[i] for i in range(len(found))] == [again[i] for i in range(len(again))]


class _Reader(AnnouncementReader):
    """One that hears, without a broker."""

    def __init__(self) -> None:
        self._topic, self._heard = "topic", self.heard

    @staticmethod
    def heard(announcement: dict[str, Any]) -> None:
        assert isinstance(announcement, dict)


def announcement(data: bytes) -> None:
    logging.getLogger("mindspore_rec").setLevel(logging.ERROR)
    _Reader()._hear(data)


_JSON = [b"[" * 3000, b'"\\ud800"', b"1e400", b"null", b"NaN", b"18446744073709551616"]
TARGETS = [
    Target("arrow", arrow),
    Target("tsv", tsv, [b"\t", b"\n", b"\r", b"\x00", b"-", b"nan", b"1970-01-01", b"1e999"]),
    Target("json", json_lines, [*_JSON, b"\n{", b"}\n", b"[1.5, 2]", b'"user"']),
    Target("journal", journal, [*_JSON, b'[1, "cut", -1]\n', b"1e999", b"\n"]),
    Target("announcement", announcement, _JSON),
]
