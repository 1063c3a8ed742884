# SPDX-License-Identifier: Apache-2.0
"""What the programs begin with: clicks of a shop, and the network of docs/your_first_model.md."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
from mindspore import Tensor, nn, ops

from mindspore_rec import AUC, HashEmbeddingLookup, LazyAdam, RecModel

ROWS = 64

ms.set_context(mode=ms.GRAPH_MODE)

table = pd.DataFrame(
    {
        "time": [f"2026-01-01T00:{minute:02}:00" for minute in range(ROWS)],
        "user": [f"u{number % 7}" for number in range(ROWS)],
        "item": [f"sofa-{number % 5}" for number in range(ROWS)],
        "price": np.linspace(0.5, 2.5, ROWS),
        "new": [number % 3 == 0 for number in range(ROWS)],
        "seen": [[number, number + 1] for number in range(ROWS)],
        "clicked": [number % 2 for number in range(ROWS)],
    }
)
ids = np.arange(2 * ROWS).reshape(ROWS, 2) % 9
numbers = table[["price"]].to_numpy(np.float32).copy()
label = table[["clicked"]].to_numpy(np.float32).copy()


class ClickModel(nn.Cell):
    """Network of a table of 4 columns for two ids a row, and a number a row."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(4, ms.int64, name="clicks")
        self.dense = nn.Dense(2 * 4 + 1, 1)

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        """Return the logits."""
        rows = self.embedding(ids).reshape((ids.shape[0], -1))
        return self.dense(ops.concat((rows, numbers), 1))


def make_model(learning_rate: Any = 0.01, metrics: Any = None) -> RecModel:
    """Return a model of a new network."""
    network = ClickModel()
    optimizer = LazyAdam(network.trainable_params(), learning_rate)
    metrics = {"auc": AUC(from_logits=True)} if metrics is None else metrics
    return RecModel(network, nn.BCEWithLogitsLoss(), optimizer, metrics)
