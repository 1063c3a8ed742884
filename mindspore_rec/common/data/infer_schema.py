# SPDX-License-Identifier: Apache-2.0
"""infer_schema: propose a schema for files or a data frame, from a sample of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.schema.column import Column
from mindspore_rec.common.columns.schema.inference import infer_columns
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.propose_crosses import propose_crosses
from mindspore_rec.common.data.read import read
from mindspore_rec.common.data.rows import Rows

__all__ = ["infer_schema"]


def infer_schema(
    source: Any,
    label: str | Column | Sequence[str | Column],
    *,
    time: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    ignore: Iterable[str] = (),
    sample_rows: int = 100_000,
) -> Schema:
    """Propose a schema for files or a data frame, from a sample of the rows.

    The command `mindspore-rec init` writes the same proposal as YAML, and says why each column has
    its kind.

    Args:
        source: `Rows`, files or a data frame; see `read`.
        label: name of the label, or names of several labels. Use a `LabelColumn` to set the value
            that counts as 1, or to predict a number.
        time: name of the column with the time of the event. Default: a column of timestamps, of
            texts that are times, or of numbers whose name and size suggest times; none if the
            sample has no such column.
        group: name of the column of groups, such as users, for the metric `gauc`. Default: none.
        weight: name of the column with the rows' weights. Default: none.
        ignore: names of columns that are not read. Default: none.
        sample_rows: number of rows of the sample, at least 2. Default: 100,000.

    Returns:
        The schema. Columns that decide the label are ignored, with a warning.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError, ValueError: `read` cannot read the source, a name is unknown or given twice, or
            the sample is unsuitable for training. The message names the column and the remedy.

    Example:
        >>> import pandas as pd
        >>> from mindspore_rec.data import infer_schema
        >>> frame = pd.DataFrame({"user": ["ann", "bob"] * 50, "clicked": [0, 1, 1, 0] * 25})
        >>> infer_schema(frame, label="clicked")
        Schema([
            CategoryColumn('user'),
            LabelColumn('clicked'),
        ])
    """
    check_int("sample_rows", sample_rows, 2, 2**31 - 1)
    rows = source if isinstance(source, Rows) else read(source)
    sample = rows.sample(sample_rows)
    total = None if sample.num_rows < sample_rows else 2 * sample_rows
    inferred = infer_columns(
        sample,
        label=label,
        time=time,
        group=group,
        weight=weight,
        ignore=ignore,
        total_rows=total,
    )
    inferred = propose_crosses(inferred, rows)
    for sentence in inferred.warnings:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return Schema(inferred.columns)
