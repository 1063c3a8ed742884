# SPDX-License-Identifier: Apache-2.0
"""Small networks that read histories, and rows for them."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import Tensor, ops

from mindspore_rec import Schema
from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn, NumberColumn
from mindspore_rec.models import HistoryLookup, InputLayer, Network
from mindspore_rec.nn import MLP, ToPadded


class MeanOfHistory(Network):
    """Network of the row's fields and the mean of its history, in one of two ways.

    Args:
        mean: 'bag' by an EmbeddingBag, or 'padded' by a block and a mask.
    """

    reads_histories = True

    def __init__(
        self, schema: Schema, *, mean: str = "bag", name: str = "mean", seed: int = 0
    ) -> None:
        super().__init__(schema, mean=mean, name=name, seed=seed)
        self.inputs = InputLayer(self.features, "concat", f"{name}.embedding", seed)
        self.histories = HistoryLookup(self.inputs, "mean" if mean == "bag" else None)
        self.has_numbers = self.features.numbers > 0
        self.pads = mean == "padded"
        self.padded = ToPadded(schema.histories[0][0].most_values)
        self.offsets = self.histories.names.index(f"{schema.histories[0][0].name}.offsets")
        widths = [*self.inputs.widths, self.histories.dims[0]]
        self.deep = MLP(widths, (4,), out_features=1)

    def construct(self, ids: Tensor, *arrays: Any) -> Tensor:
        """Return the logit."""
        parts = self.inputs(ids, arrays[0]) if self.has_numbers else self.inputs(ids)
        made = self.histories(arrays)
        if not self.pads:
            return self.deep(*parts, made[0])
        block, mask = self.padded(made[0], made[self.offsets])
        weights = mask.astype(ms.float32).expand_dims(2)
        return self.deep(*parts, (block * weights).sum(1) / ops.maximum(weights.sum(1), 1.0))


def schema_of(**options: Any) -> Schema:
    """Return a schema with a number, a history and a side column of numbers."""
    columns = [
        CategoryColumn("row"),
        CategoryColumn("item", table="items", values="whole"),
        NumberColumn("price"),
        HistoryColumn("seen", table="items", values="whole", **options),
        HistoryColumn("seen_at", values="int64", side_of="seen"),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=4)


def clicks(rows: int, seed: int = 0, longest: int = 5) -> pa.Table:
    """Return rows; a click is likelier if the item was seen."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, rows) * (rng.random(rows) < 0.7)
    seen = [rng.integers(0, 20, n).tolist() for n in lengths]
    item = rng.integers(0, 20, rows)
    liked = [i in row for i, row in zip(item.tolist(), seen, strict=True)]
    return pa.table(
        {
            "row": np.arange(rows),
            "item": item,
            "price": rng.normal(0, 9, rows),
            "seen": pa.array(seen, pa.list_(pa.int64())),
            "seen_at": pa.array([list(range(len(row))) for row in seen], pa.list_(pa.int64())),
            "clicked": np.array(liked, np.int8),
        }
    )
