# SPDX-License-Identifier: Apache-2.0
"""Open the rows of a YAML file: training, validation and test rows, and rows to predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mindspore_rec.command.settings import KafkaSource, Settings
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.data.rows import Rows, read

__all__ = ["Parts", "id_columns", "one_batch", "open_parts", "rows_of", "rows_to_predict", "schema_of"]


@dataclass(frozen=True)
class Parts:
    """Rows of a YAML file.

    Attributes:
        train: training rows.
        valid: validation rows, or None.
        test: test rows, or None.
    """

    train: Rows
    valid: Rows | None
    test: Rows | None


def schema_of(settings: Settings) -> Schema:
    """Return the schema of the columns.

    Raises:
        ValueError: a column is wrong, there is no label, or no column to learn from.
    """
    described = {"columns": settings.columns, "embedding_dim": settings.embedding_dim}
    schema = Schema.from_description(described)
    if not schema.labels:
        raise ValueError("'columns' must have a column of kind label, the value to predict")
    return schema
