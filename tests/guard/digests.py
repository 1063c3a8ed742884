# SPDX-License-Identifier: Apache-2.0
"""What the guard records of a model: digests of tables, weights and predictions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from mindspore_rec import RecModel, tables_of

__all__ = ["hex_of", "of_model", "of_tables", "of_weights"]


def hex_of(*arrays: Any) -> str:
    """Return a digest of arrays: of their dtypes, shapes and bytes.

    Example:
        >>> hex_of(np.zeros(2)) == hex_of(np.zeros(2)) != hex_of(-np.zeros(2))
        True
    """
    found = hashlib.blake2b(digest_size=8)
    for each in arrays:
        array = np.ascontiguousarray(each)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def of_tables(network: Any) -> dict[str, str]:
    """Return the digest of each table, and one of all its columns: state, counts, ages, clocks."""
    found: dict[str, str] = {}
    for table in tables_of(network):
        found[f"{table.name} table"] = table.digest().digest
        found[f"{table.name} rows and state"] = _sorted(table.export_rows(with_state=True))
        found[f"{table.name} counters"] = _sorted(table.export_counters())
        clocks = np.array([table.step, table.event_time or 0], np.int64)
        sketch = np.frombuffer(table.export_sketch(), np.uint8)
        found[f"{table.name} clocks and sketch"] = hex_of(clocks, sketch)
    return found


def _sorted(columns: Mapping[str, np.ndarray]) -> str:
    """Return a digest of columns that does not depend on the order of keys."""
    order = np.argsort(columns["keys"])
    return hex_of(*(columns[name][order] for name in sorted(columns)))


def of_weights(cell: Any) -> dict[str, str]:
    """Return the digest of the network's weights, and of all other dense parameters.

    Those are the optimizer's, and others that no gradient trains.
    """
    parts: dict[str, list[Any]] = {"weights": [], "optimizer": []}
    own = {each.name for each in cell.network.trainable_params()}
    for each in cell.get_parameters():
        if not hasattr(each, "mindspore_rec_table"):
            parts["weights" if each.name in own else "optimizer"].append(each.asnumpy().copy())
    return {name: hex_of(*arrays) for name, arrays in parts.items()}


def of_model(model: RecModel, *inputs: np.ndarray) -> dict[str, str]:
    """Return the digests of a model's tables and weights, and of what it predicts."""
    network = model.train_network
    answer = model.predict(*inputs)
    answers = answer if isinstance(answer, tuple) else (answer,)
    predictions = hex_of(*(each.asnumpy() for each in answers))
    return {**of_tables(network), **of_weights(network), "predictions": predictions}
