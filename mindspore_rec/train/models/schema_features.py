# SPDX-License-Identifier: Apache-2.0
"""SchemaFeatures: describes the arrays of a schema to a network."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore import nn

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.schema_cells import SchemaEmbedding, SchemaSum

__all__ = ["SchemaFeatures"]


@dataclass(frozen=True)
class SchemaFeatures(Features):
    """The arrays `ids` and `numbers` of a schema.

    One lookup reads the single keys of all columns that share a table. A list or text has its own
    `EmbeddingBag`, which returns the mean of the vectors of its values. All lookups of a table
    share the rows of the table.

    All columns without their own table settings share one table, which has the name of the cell.
    The name of any other table consists of the cell's name, a dot, and the table's name in the
    schema. If the schema does not name the table, the name ends with the table's number in
    `Schema.tables`.

    Args:
        schema: the schema.
    """

    schema: Schema

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of floats in the vector of each field."""
        return tuple(table.embedding_dim for table in self.schema.tables for _ in table.fields)

    @property
    def numbers(self) -> int:
        """Number of floats in a row of the array `numbers`."""
        return len(self.schema.numbers)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the labels."""
        return tuple(self.schema.tasks)

    @property
    def binary(self) -> tuple[bool, ...]:
        """For each task, True if its label has two values, and False if the label is a number."""
        return tuple(label.binary for label in self.schema.labels) or super().binary

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in self.schema.fields)

    def embedding(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that returns the vectors of all fields."""
        return SchemaEmbedding(self.schema, name, seed)

    def sums(self, name: str, seed: int) -> nn.Cell:
        """Return a cell that returns the sum of one weight per field."""
        return SchemaSum(self.schema, name, seed)
