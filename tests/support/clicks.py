# SPDX-License-Identifier: Apache-2.0
"""Batches of clicks for tests that train, and the rows that a table has learnt."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["clicks", "rows_by_key"]


def clicks(
    rows: int, seed: int, fields: int, numbers: int = 0, keys: int = 40
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids of both signs, numbers, and labels: a row is a click if its first id is even."""
    rng = np.random.default_rng((seed, rows))
    ids = rng.integers(-keys // 2, keys // 2, (rows, fields))
    dense = rng.standard_normal((rows, numbers)).astype(np.float32)
    return ids, dense, (ids[:, :1] % 2 == 0).astype(np.float32)


def rows_by_key(table: Any) -> dict[str, np.ndarray]:
    """Return the columns of a table's rows, with optimizer state, in the order of their keys."""
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    return {name: column[order] for name, column in rows.items()}
