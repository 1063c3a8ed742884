# SPDX-License-Identifier: Apache-2.0
"""Open the training, validation and test rows that a YAML file names, and rows to predict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mindspore_rec.command.settings import KafkaSource, Settings
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.read import read
from mindspore_rec.common.data.rows import Rows

__all__ = [
    "Parts",
    "id_columns",
    "one_batch",
    "open_for_refit",
    "open_parts",
    "rows_of",
    "rows_to_predict",
    "schema_of",
]


@dataclass(frozen=True)
class Parts:
    """Training, validation and test rows.

    Attributes:
        train: training rows, with only a sample of the negatives if the YAML file sets `sample`.
        whole_train: all training rows, even if the YAML file sets `sample`.
        valid: validation rows, or None.
        test: test rows, or None.
    """

    train: Rows
    whole_train: Rows
    valid: Rows | None
    test: Rows | None


def schema_of(settings: Settings) -> Schema:
    """Return the schema that the YAML file describes.

    Raises:
        ValueError: a column is unusable, or there is no label or no column to learn from.
    """
    described = {"columns": settings.columns, "embedding_dim": settings.embedding_dim}
    schema = Schema.from_description(described)
    if not schema.labels:
        raise ValueError("'columns' must have a column of kind label, the value to predict")
    return schema


def rows_of(
    source: str | tuple[str, ...], settings: Settings, schema: Schema | None, thinned: bool = False
) -> Rows:
    """Open files and return their rows.

    Args:
        source: paths of the rows.
        settings: settings of the YAML file.
        schema: description of the rows; rows are checked, and only the schema's columns are read.
            If `schema` is None, all columns are read, and rows are not checked.
        thinned: if True, and the YAML file sets `sample`, only a sample of the negative rows is
            read. Default: False.
    """
    paths = list(source) if isinstance(source, tuple) else source
    return read(
        paths,
        schema,
        format=settings.csv,
        bad_rows=settings.bad_rows,
        sample=settings.sample if thinned else None,
    )


def open_parts(settings: Settings, schema: Schema) -> Parts:
    """Return training, validation and test rows.

    Raises:
        ValueError: there are no rows, or rows do not fit the schema.
    """
    assert not isinstance(settings.source, KafkaSource)
    split = settings.split
    whole = rows_of(settings.source, settings, schema)
    if not whole.head(1).num_rows:
        raise ValueError(f"{whole.source} has no rows")
    thinned = whole
    if settings.sample is not None:
        thinned = rows_of(settings.source, settings, schema, thinned=True)
    train = _divided(thinned, settings, schema)[0]
    whole_train, *others = _divided(whole, settings, schema)
    made: list[Rows | None] = []
    for share, paths in zip(split.shares()[1:], (split.valid, split.test), strict=True):
        if isinstance(paths, (str, tuple)):
            made.append(rows_of(paths, settings, schema))
        else:
            made.append(others.pop(0) if share > 0 else None)
    return Parts(train, whole_train, *made)


def open_for_refit(settings: Settings, schema: Schema) -> Rows:
    """Return training and validation rows together, without the negatives that `sample` drops.

    Raises:
        ValueError: there are no validation rows, or the validation rows are in other files although
            the source's rows are divided into training and test rows.
    """
    assert not isinstance(settings.source, KafkaSource)
    train, valid, test = settings.split.shares()
    others = settings.split.valid
    if isinstance(others, (str, tuple)):
        if train < 1:
            raise ValueError(
                "'train.refit' needs validation rows that are a share of the source, or test rows "
                "in files of their own: set 'split.valid' to a share, or 'split.test' to files"
            )
        both = [settings.source, others]
        paths = [p for each in both for p in ((each,) if isinstance(each, str) else each)]
        return rows_of(tuple(paths), settings, schema, thinned=True)
    if not valid:
        raise ValueError("'train.refit' needs validation rows: set 'split.valid'")
    rows = rows_of(settings.source, settings, schema, thinned=True)
    return _divided(rows, settings, schema, (train + valid, test))[0]


def _divided(
    rows: Rows, settings: Settings, schema: Schema, every: tuple[float, ...] | None = None
) -> tuple[Rows, ...]:
    """Divide the rows by the shares of the parts; return each part whose share is above 0.

    Args:
        rows: the rows.
        settings: settings of the YAML file.
        schema: description of the rows.
        every: share of each part. Default: None, which means the shares of the training, validation
            and test rows.
    """
    split = settings.split
    shares = [share for share in every or split.shares() if share > 0]
    if len(shares) == 1 and shares[0] > 1 - 1e-9:
        return (rows,)
    by = split.by or ("random" if schema.time is None else "time")
    if by == "time":
        if schema.time is None:
            raise ValueError("'split.by' is time, but no column is of kind time")
        try:
            return rows.split_by_time(*shares)
        except ValueError as error:
            text = str(error).partition(": rows of")[0]
            raise ValueError(f"{text}: set `split: {{by: random}}` in the YAML file") from error
    return rows.split(*shares, seed=split.seed)


def id_columns(schema: Schema) -> list[str]:
    """Return the names of the columns that identify a row: label, time and group."""
    kinds = ("label", "time", "group")
    group = schema.group
    return [each.name for each in schema.columns if each.kind in kinds or each is group]


def rows_to_predict(
    source: str, settings: Settings, schema: Schema, keep: Sequence[str], must_keep: bool
) -> Iterator[pa.RecordBatch]:
    """Read rows to predict: the network's columns and the columns in `keep`.

    Args:
        source: path of the rows, which need no label.
        settings: settings of the YAML file.
        schema: description of the rows.
        keep: names of columns to read in addition to the columns of the schema.
        must_keep: True to raise an error if the source lacks a column of `keep`.

    Raises:
        ValueError: a column is missing.
    """
    # Each row needs a prediction, so a row that cannot be read is an error, whatever the value of
    # `bad_rows`.
    strict = dataclasses.replace(settings, bad_rows=None)
    rows = rows_of(source, strict, None)
    names = schema.feature_names
    names += [name for name in schema.asked_columns if name in rows.names]
    names += [name for name in keep if must_keep or name in rows.names]
    return iter(rows.select(list(dict.fromkeys(names))))


def one_batch(rows: Any) -> pa.RecordBatch:
    """Read all rows into one record batch."""
    return rows if isinstance(rows, pa.RecordBatch) else to_record_batch(rows)
