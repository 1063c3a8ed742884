# SPDX-License-Identifier: Apache-2.0
"""Rows of JSON lines: text files with one object per line."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.json as pajson

from mindspore_rec.common.data.bad_rows import BadRowCount, good_rows
from mindspore_rec.common.data.file_rows import check_names
from mindspore_rec.common.data.large_numbers import beyond_int64
from mindspore_rec.common.data.settings import JsonLinesFormat
from mindspore_rec.common.data.sources import DataFile
from mindspore_rec.common.data.text_blocks import TextBlocks
from mindspore_rec.common.data.text_rows import TextRows

__all__ = ["JsonRows"]


class JsonRows(TextRows):
    """Rows of one file of JSON lines.

    Args:
        file: the file.
        settings: format of the file.
        bad: counts bad rows.
        types: column types found in the first file of the source. Default: None, which means that
            the types are inferred.
    """

    def __init__(
        self,
        file: DataFile,
        settings: JsonLinesFormat,
        bad: BadRowCount,
        types: pa.Schema | None = None,
    ) -> None:
        super().__init__(file.name, TextBlocks(file, settings.encoding), bad)
        if types is not None:
            self.schema = types
            return
        known = pa.schema([(name, kind) for name, kind in settings.types.items()])
        try:
            self.schema = self._inferred(self._blocks.first(), known)
            check_names(self.schema.names, file.name)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{file.name} has names of columns that are not UTF-8 text: name the encoding in "
                "format=JsonLinesFormat(encoding=...)"
            ) from error

    def _inferred(self, block: bytes, known: pa.Schema) -> pa.Schema:
        try:
            inferred = self._with_large(block, _read(block, known, "infer"), known)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            tables, _ = good_rows(
                self.records(block), lambda some: _read(b"".join(some), known, "infer"), 1000
            )
            if not tables:
                raise ValueError(
                    f"{self.name} has no line with a JSON object in its first block"
                ) from None
            inferred = _usual(tables)
        return pa.schema(
            field.with_type(pa.string()) if pa.types.is_null(field.type) else field
            for field in inferred
        )

    def _with_large(self, block: bytes, table: pa.Table, known: pa.Schema) -> pa.Schema:
        """Return the types of the block's table; whole numbers from 2**63 on are uint64."""
        inferred = table.schema
        for place, field in enumerate(inferred):
            if field.name in known.names or not beyond_int64(table.column(place)):
                continue
            try:
                _read(block, pa.schema([(field.name, pa.uint64())]), "ignore")
            except pa.ArrowInvalid:
                continue
            inferred = inferred.set(place, field.with_type(pa.uint64()))
        return inferred

    def parse(self, body: bytes, columns: Sequence[str]) -> pa.Table:
        """Parse text that consists of complete records."""
        fields = [self.schema.field(each) for each in columns]
        wanted = fields or [self.schema.field(0)]
        if not body.strip():
            return pa.schema(fields).empty_table()
        table = _read(body, pa.schema(wanted), "ignore").select(list(columns))
        table.validate(full=True)  # the parser takes texts that are not UTF-8
        return table

    def records(self, body: bytes) -> list[bytes]:
        """Return the lines of a block."""
        return [each + b"\n" for each in body.removesuffix(b"\n").split(b"\n")]


def _usual(tables: Sequence[pa.Table]) -> pa.Schema:
    """Return, for each column, the type that fits most rows."""
    rows: dict[str, dict[pa.DataType, int]] = {}
    for table in tables:
        for field in table.schema:
            if not pa.types.is_null(field.type):
                kinds = rows.setdefault(field.name, {})
                kinds[field.type] = kinds.get(field.type, 0) + table.num_rows
            else:
                rows.setdefault(field.name, {})
    fields = []
    for name, kinds in rows.items():
        kind = max(kinds, key=lambda each: kinds[each]) if kinds else pa.null()
        if pa.types.is_int64(kind) and pa.float64() in kinds:
            kind = pa.float64()
        fields.append((name, kind))
    return pa.schema(fields)


def _read(body: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
    return pajson.read_json(
        pa.BufferReader(body),
        read_options=pajson.ReadOptions(use_threads=False, block_size=len(body) + 1),
        parse_options=pajson.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior=unexpected
        ),
    )
