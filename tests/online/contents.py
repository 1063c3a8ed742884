# SPDX-License-Identifier: Apache-2.0
"""Contents of a trained model, in an order that does not depend on how it came to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from mindspore_rec import RecModel, tables_of
from tests.support.native_table import native_of

__all__ = ["rows_of", "weights_of"]


def rows_of(model: RecModel) -> dict[str, np.ndarray]:
    """Return the rows, counters and clocks of this process's tables."""
    found: dict[str, Any] = {}
    for table in tables_of(model.train_network):
        native = native_of(table)
        for kind, exported in (
            ("rows", native.export_rows(with_state=True)),
            ("counters", native.export_counters()),
        ):
            order = np.argsort(exported["keys"])
            found.update({f"{table.name} {kind} {n}": exported[n][order] for n in exported})
        found[f"{table.name} clock"] = np.array([native.step, native.event_time, *native.horizon])
    return found


def weights_of(model: RecModel, tables: str) -> dict[str, np.ndarray]:
    """Return the parameters of the network and the optimizer but those of tables.

    Args:
        tables: beginning of the tables' names.
    """
    found = {}
    for parameter in model.train_network.get_parameters():
        # An anchor has a number of its table in this process; rows are compared by themselves.
        anchor = hasattr(parameter, "mindspore_rec_table")
        if not parameter.name.startswith(tables) and not anchor:
            found[f"parameter {parameter.name}"] = parameter.asnumpy()
    return found
