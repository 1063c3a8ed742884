# SPDX-License-Identifier: Apache-2.0
"""Rows of a planted model as Criteo's tab-separated text."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import csv

from datasets.synthetic.planted import PlantedModel, RawRows

__all__ = ["write_tsv"]


def write_tsv(stream: BinaryIO, model: PlantedModel, raw: RawRows) -> None:
    """Append rows without a header: the label, the counts (empty if missing) and the categories.

    Args:
        stream: Binary file to write to.
        model: The model that made the rows.
        raw: The rows.

    Example:
        >>> import io
        >>> from datasets.synthetic import CategoryField, PlantedConfig
        >>> config = PlantedConfig((CategoryField(9),), counts=0, pairs_share=0, counts_share=0)
        >>> model, text = PlantedModel(config, seed=1), io.BytesIO()
        >>> write_tsv(text, model, model.rows(0, 1))
        >>> text.getvalue().count(b"\\t"), len(text.getvalue())
        (1, 11)
    """
    columns = [pa.array(raw.clicks.astype(np.int8))]
    for counts in raw.counts.T:
        missing = np.isnan(counts)
        columns.append(pa.array(np.where(missing, 0, counts).astype(np.int64), mask=missing))
    columns += [_text_column(model.texts(i, ranks)) for i, ranks in enumerate(raw.ranks.T)]
    table = pa.table(columns, names=[str(i) for i in range(len(columns))])
    csv.write_csv(
        table,
        stream,
        csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none"),
    )


def _text_column(digits: np.ndarray) -> pa.Array:
    """Return strings of 8 bytes each, without a Python object per value."""
    rows = len(digits)
    offsets = np.arange(0, 8 * rows + 1, 8, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits))
