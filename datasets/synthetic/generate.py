# SPDX-License-Identifier: Apache-2.0
"""Generate complete batches of rows from a planted model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from datasets.common.blocks import Batch
from datasets.criteo.schema import scale_counts
from datasets.synthetic.config import PlantedConfig, criteo_like
from datasets.synthetic.planted import PlantedModel, RawRows

__all__ = ["encode", "generate"]


def generate(
    rows: int,
    seed: int,
    start: int = 0,
    block_rows: int = 16384,
    config: PlantedConfig | None = None,
) -> Iterator[Batch]:
    """Yield the rows of a planted model, in blocks.

    Args:
        rows: Number of rows, at least 0.
        seed: Seed of the model's parameters and of the rows.
        start: Index of the first row, at least 0 (default 0). With the same seed, the rows of two
            ranges differ, but are rows of the same model. Train on one range of rows, and test on a
            different range of rows.
        block_rows: Rows per block, at least 1 (default 16384). Rows do not depend on the block
            size.
        config: Fields, counts, click rate and other settings of the model; default `criteo_like()`.

    Yields:
        ``ids`` int64 [B, F] (`mindspore_rec.category_keys` of the values' texts), ``dense`` float32
        [B, N] (scaled by `datasets.criteo.schema.scale_counts`), ``label`` float32 [B, 1],
        ``bayes`` float32 [B, 1] (the true click probability).

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> block = next(generate(5, seed=1))
        >>> {name: (str(array.dtype), array.shape) for name, array in block.items()}["ids"]
        ('int64', (5, 26))
    """
    if rows < 0 or start < 0 or block_rows < 1:
        raise ValueError(
            "rows and start must be at least 0 and block_rows at least 1, "
            f"got {rows}, {start}, {block_rows}"
        )
    model = PlantedModel(config or criteo_like(), seed)
    for first in range(start, start + rows, block_rows):
        yield encode(model, model.rows(first, min(first + block_rows, start + rows)))


def encode(model: PlantedModel, raw: RawRows) -> Batch:
    """Convert raw rows to a batch: keys, scaled counts, label and true probability."""
    return {
        "ids": model.keys(raw.ranks),
        "dense": scale_counts(raw.counts),
        "label": raw.clicks.astype(np.float32)[:, None],
        "bayes": raw.bayes.astype(np.float32)[:, None],
    }
