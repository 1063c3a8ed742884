# SPDX-License-Identifier: Apache-2.0
"""Fit a schema to a sample of rows."""

from __future__ import annotations

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows

__all__ = ["fit_to_rows"]

_FIT_ROWS = 200_000


def fit_to_rows(schema: Schema, rows: Rows, weight: str | None = None) -> None:
    """Fit a schema to a sample of rows if the schema's scales have learned nothing.

    If a schema has no scales, the schema is fitted only if types of its categories are undecided.
    The statistics of labels are learned from all rows.

    Args:
        schema: the schema.
        rows: training rows.
        weight: name of the weight column that corrects for dropped negatives. Default: None.
    """
    only_types = schema.undecided and not schema.pipeline.learns
    if only_types or not schema.is_fitted:
        schema.fit(rows.sample(_FIT_ROWS, seed=0))
        if schema.has_statistics:
            schema.fit_statistics(rows, weight)
