# SPDX-License-Identifier: Apache-2.0
"""Selection: reads the selected columns and rows of a source, part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import one_array
from mindspore_rec.common.columns.labels import positive_rows
from mindspore_rec.common.data.bad_rows import BadRow, shortened
from mindspore_rec.common.data.data_parts import DataParts, FilePart
from mindspore_rec.common.data.file_rows import POOL
from mindspore_rec.common.data.order import PassOrder
from mindspore_rec.common.data.pipeline import Reading
from mindspore_rec.common.data.places import PlaceShare, place_shares
from mindspore_rec.common.data.settings import Sample

__all__ = ["Selection"]

_SAMPLE_SALT = 1 << 32


@dataclass(frozen=True)
class Selection:
    """Columns and rows of a source.

    Args:
        data: the source.
        schema: `Schema` of the columns. Default: None.
        columns: names of the columns. Default: None, which means all columns.
        where: filter on the stored values. Default: None.
        shares: parts of splits; a row is selected only if each part contains the row's place in its
            file.
        sample: thinned negatives. Default: None.
    """

    data: DataParts
    schema: Any = None
    columns: tuple[str, ...] | None = None
    where: pc.Expression | None = None
    shares: tuple[PlaceShare, ...] = ()
    sample: Sample | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns of the batches."""
        names = self.stored_names
        return [*names, self.weight] if self.weight and self.weight not in names else names

    @property
    def stored_names(self) -> list[str]:
        """Names of the columns that are read for the batches."""
        return list(self.data.schema.names if self.columns is None else self.columns)

    @property
    def weight(self) -> str | None:
        """Name of the column with the rows' weights, if negatives are thinned; otherwise None."""
        if self.sample is None:
            return None
        column = getattr(self.schema, "weight", None)
        return self.sample.weight or getattr(column, "name", None) or "weight"

    @property
    def labels(self) -> list[str]:
        """Names of the label columns that decide which rows are thinned."""
        assert self.sample is not None
        if self.sample.label is not None:
            names = [self.sample.label]
        else:
            names = [each.name for each in getattr(self.schema, "labels", ())]
        if not names:
            raise ValueError("sample must name its label without a schema: Sample(..., label=)")
        for name in names:
            if name not in self.data.schema.names:
                raise ValueError(f"sample: {self.data.source} has no column {name!r}")
        return names

    @property
    def arrow_schema(self) -> pa.Schema:
        """Names and types of the columns of the batches."""
        names = self._needed()
        empty = pa.schema([self.data.schema.field(each) for each in names]).empty_table()
        return self._finished(empty, None, None)[0].schema

    @property
    def keeps_all(self) -> bool:
        """True if no filter, split or sample removes rows."""
        return self.where is None and not self.shares and self.sample is None

    def with_texts(self, schema: Any) -> Selection:
        """Return the selection; in CSV files, columns that a schema reads as texts are texts."""
        data = self.data.with_texts(schema.text_columns)
        return self if data is self.data else replace(self, data=data)

    def parts(self) -> list[FilePart]:
        """Return the parts that may contain selected rows."""
        self.data.check_columns(self._needed())
        return self.data.parts if self.where is None else self.data.matching(self.where)

    def reading(self, parts: Sequence[FilePart], order: PassOrder, threads: int) -> Reading:
        """Return settings for `read_items`: the parts, and the order of a pass over the parts."""
        return Reading(
            order,
            lambda each: self.data.fetch(parts[each]),
            lambda each, fetched: self.read(parts[each], fetched),
            lambda each: self.data.sequential(parts[each].file),
            lambda each: parts[each].part.size,
            threads,
        )

    def read(self, which: FilePart, fetched: Any) -> list[pa.RecordBatch]:
        """Return the rows of a part."""
        table = self.data.decode(which, fetched, self._needed())
        return self._finished(table, which, self._mask(table, which))

    @property
    def drops_faults(self) -> bool:
        """True if rows that do not fit the schema are skipped instead of raising an error."""
        return self.schema is not None and self.data.bad.settings.most_share > 0

    def known_count(self) -> int | None:
        """Return the number of rows; None if the rows must be read to count them."""
        rows = [each.part.rows for each in self.parts()]
        if not self.keeps_all or self.drops_faults or None in rows:
            return None
        return sum(each or 0 for each in rows)

    def why_empty(self) -> str:
        """Return a text to append to "has no rows", which explains why there may be no rows."""
        if self.where is not None:
            return f" for which the filter {self.where} is true"
        return " in this part of a split" if self.shares else ""

    def digest(self) -> str:
        """Return a digest of the files' sizes, the parts, the filter, the splits and the sample."""
        parts = [tuple(each.part) for each in self.parts()]
        sample = None if self.sample is None else (self.sample.negatives, self.sample.seed)
        told = (self.data.sizes, parts, str(self.where), self.shares, sample)
        return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()

    def _needed(self) -> list[str]:
        return list(dict.fromkeys([*self.stored_names, *self._mask_names()]))

    def _mask_names(self) -> list[str]:
        names = [] if self.sample is None else self.labels
        if self.where is not None:
            # An expression does not list its columns, so search for column names in the
            # expression's text. If the expression's text contains a column's name only by chance,
            # the column is read unnecessarily.
            text = str(self.where)
            names += [each for each in self.data.schema.names if each in text]
        return names

    def _mask(self, table: pa.Table, which: FilePart) -> np.ndarray | None:
        """Return a mask of the selected rows; None if all rows are selected."""
        rows, file, place = table.num_rows, which.file, which.part.place
        mask = np.ones(rows, bool)
        for share in self.shares:
            mask &= share.mask(file, place, rows)
        if self.sample is not None:
            drawn = place_shares(self.sample.seed, _SAMPLE_SALT, file, place, rows)
            mask &= (drawn < self.sample.negatives) | self._positive(table)
        if self.where is not None:
            mask &= _mask_of(table, self.where, self.data.source)
        return None if mask.all() else mask

    def _positive(self, table: pa.Table) -> np.ndarray:
        """Return a mask of the rows with label 1; with several labels, at least one must be 1."""
        assert self.sample is not None
        names = self.labels
        columns = [one_array(table.column(each)) for each in names]
        if self.sample.label is None:
            made: np.ndarray = self.schema.positives_of(
                pa.RecordBatch.from_arrays(columns, names=names)
            )
            return made
        [name], [values] = names, columns
        of_schema = getattr(self.schema, "labels", ())
        label = next((each for each in of_schema if each.name == name), None)
        positive = positive_rows(name, values, None if label is None else label.positive)
        wrong = pc.and_not(positive.is_null(), values.is_null(nan_is_null=True))
        if label is None and pc.any(wrong).as_py():
            raise ValueError(
                f"sample: label {name!r} must be 0 or 1, got {values.filter(wrong)[0].as_py()!r}: "
                "pass a schema, whose LabelColumn names the value that counts as 1"
            )
        return positive.fill_null(True).to_numpy(zero_copy_only=False)

    def _finished(self, table: pa.Table, which: FilePart | None, mask: Any) -> list[pa.RecordBatch]:
        """Return the rows that a mask keeps, with the columns of the batches."""
        if mask is not None:
            table = table.filter(pa.array(mask))
        rows = table.select(self.stored_names)
        if self.sample is not None and self.weight is not None:
            share = np.float32(1 / self.sample.negatives)
            weights = np.where(self._positive(table), np.float32(1), share)
            place = rows.schema.get_field_index(self.weight)
            if place >= 0:
                weights = weights * one_array(rows.column(place)).to_numpy(zero_copy_only=False)
                rows = rows.remove_column(place)
            made = pa.array(weights.astype(np.float32))
            rows = rows.add_column(place if place >= 0 else rows.num_columns, self.weight, [made])
        if self.schema is None or which is None or not rows.num_rows:
            return plain_batches(rows)
        return self._without_faults(rows, which, mask)

    def _without_faults(self, table: pa.Table, which: FilePart, mask: Any) -> list[pa.RecordBatch]:
        """Return the rows whose values are legal in the schema, and count the other rows."""
        view = (which.file, which.part.number, str(self.where), self.shares, self.sample)
        if view in self.data.without_faults:
            return plain_batches(table)
        file = self.data.opened[which.file]
        total = table.num_rows
        [rows] = table.combine_chunks(POOL).to_batches()
        places = np.arange(total) if mask is None else np.flatnonzero(mask)
        bad: list[BadRow] = []
        try:
            while faults := self.schema.faults(rows, rows.schema.names):
                fault = faults[0]
                first = file.first_row(which.part.number)
                for each in fault.rows:
                    row = first + int(places[each])
                    reason = replace(fault, value=rows.column(fault.column)[int(each)].as_py())
                    if not self.data.bad.settings.most_share:
                        raise ValueError(reason.sentence(row))
                    value = shortened(str(reason.value).encode())
                    bad.append(BadRow(file.name, f"row {row}", reason.sentence(row), value))
                kept = np.ones(rows.num_rows, bool)
                kept[fault.rows] = False
                rows, places = rows.filter(pa.array(kept)), places[kept]
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from error
        counted = 0 if which.part.rows is None else total  # text_rows.py has counted the others
        self.data.bad.add((file.name, which.part.number, "faults"), counted, bad)
        if bad:
            return [rows]
        self.data.without_faults.add(view)
        return plain_batches(table)


def plain_batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Return a table's chunks (at least one), and decode encodings that few functions support."""
    if not table.num_rows:
        arrays = [one_array(each) for each in table.columns]
        return [pa.RecordBatch.from_arrays(arrays, names=table.column_names)]
    return [
        pa.RecordBatch.from_arrays(
            [one_array(pa.chunked_array([each])) for each in rows.columns], names=table.column_names
        )
        for rows in table.to_batches()
    ]


def _mask_of(table: pa.Table, where: pc.Expression, source: str) -> np.ndarray:
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions([where], ["mask"])),
        ]
    )
    try:
        column = plan.to_table(use_threads=False).column(0)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        shown = " ".join(str(error).split())
        raise ValueError(f"the filter {where} does not fit {source}: {shown}") from error
    if not pa.types.is_boolean(column.type):
        raise ValueError(f"a filter must be true or false for each row, got {column.type}: {where}")
    return one_array(column).fill_null(False).to_numpy(zero_copy_only=False)
