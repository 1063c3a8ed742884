# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of a field's keys from the table of a trained network."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.columns.schema.layout import Field
from mindspore_rec.train.models.schema_cells import SchemaEmbedding
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["rows_of_field"]


def rows_of_field(network: nn.Cell, field: Field, keys: np.ndarray) -> np.ndarray:
    """Return the rows for `keys`: a float32 array `[N, dim]`, with zeros for keys without a row.

    Args:
        network: a network that was made from a schema.
        field: a field of the schema.
        keys: int64 `[N]`.

    Raises:
        ValueError: the network has no vectors for the field; for example, a logistic regression has
            no vectors.
    """
    for _, cell in network.cells_and_names():
        if isinstance(cell, SchemaEmbedding):
            for lookup in cell.lookups:
                if lookup.start <= field.start < lookup.stop:
                    (table,) = tables_of(lookup)
                    values = table.get(Tensor(keys), insert_default_value=False)
                    made: np.ndarray = values.asnumpy().astype(np.float32)
                    return made
    raise ValueError("the network has no embedding vectors, so no ids are near to each other")
